// Where every row goes, on the host. Legend: as in route.h.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "keyseat/mutation.h"
#include "keyseat/nn/exchange.h"
#include "route.h"

namespace keyseat_dispatcher_alltoall {
namespace {

int64_t* data(const at::Tensor& tensor) { return tensor.mutable_data_ptr<int64_t>(); }

Counts count_choices(const int64_t* index, int64_t pairs, int64_t experts) {
  Counts counts(static_cast<size_t>(experts), 0);
  for (int64_t i = 0; i < pairs; ++i) {
    if (index[i] >= 0) ++counts[static_cast<size_t>(index[i])];
  }
  return counts;
}

}  // namespace

Sorted sort_by_expert(const at::Tensor& topk_index_TK, int64_t experts, int64_t capacity) {
  const at::Tensor index_TK = topk_index_TK.to(at::kCPU).contiguous();
  const int64_t* index = index_TK.const_data_ptr<int64_t>();
  const int64_t top_k = index_TK.size(1);
  Sorted sorted;
  sorted.rows_of_expert = count_choices(index, index_TK.numel(), experts);
  for (int64_t& rows : sorted.rows_of_expert) {
    if (capacity == 0) continue;
    if (rows > capacity) {
      throw keyseat::Error(keyseat::Problem{
          keyseat::Code::kR4Contract,
          {},
          fmt::format("dispatcher/alltoall got {} choices of one expert above its capacity of {}",
                      rows, capacity),
          "the router marks what is above the capacity with -1",
          ""});
    }
    rows = capacity;
  }
  Counts next(static_cast<size_t>(experts), 0);  // next free row of each expert
  std::exclusive_scan(sorted.rows_of_expert.begin(), sorted.rows_of_expert.end(), next.begin(),
                      int64_t{0});
  const int64_t total = keyseat::nn::sum_of(sorted.rows_of_expert);
  sorted.source_S = at::full({total}, -1, at::kLong);
  sorted.slot_TK = at::empty(index_TK.sizes(), at::kLong);
  int64_t* source = data(sorted.source_S);
  int64_t* slot = data(sorted.slot_TK);
  for (int64_t i = 0; i < index_TK.numel(); ++i) {
    slot[i] = index[i] < 0 ? -1 : next[static_cast<size_t>(index[i])]++;
    if (slot[i] >= 0) source[slot[i]] = i / top_k;
  }
  return sorted;
}

Received sort_received(const at::Tensor& rows_tre, int64_t own) {
  const int64_t slices = rows_tre.size(0), ranks = rows_tre.size(1), local = rows_tre.size(2);
  const int64_t* rows = rows_tre.const_data_ptr<int64_t>();
  const int64_t blocks = slices * ranks;
  Received received;
  received.rows_of_expert.assign(static_cast<size_t>(local), 0);
  received.of_expert_tensor_rank.assign(static_cast<size_t>(slices), 0);
  received.from_expert_rank.assign(static_cast<size_t>(ranks), 0);
  Counts begin(static_cast<size_t>(blocks * local), 0);  // first received row of every block
  int64_t total = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t j = 0; j < local; ++j) {
      const int64_t size = rows[block * local + j];
      begin[static_cast<size_t>(block * local + j)] = total;
      total += size;
      received.rows_of_expert[static_cast<size_t>(j)] += size;
      received.of_expert_tensor_rank[static_cast<size_t>(block / ranks)] += size;
      if (block / ranks == own)
        received.from_expert_rank[static_cast<size_t>(block % ranks)] += size;
    }
  }
  const bool sorted = blocks == 1 || local == 1 || KEYSEAT_MUTATED("no second sort");
  if (sorted) return received;
  received.row_M = at::empty({total}, at::kLong);
  received.slot_R1 = at::empty({total, 1}, at::kLong);
  int64_t* row = data(received.row_M);
  int64_t* slot = data(received.slot_R1);
  int64_t next = 0;
  for (int64_t j = 0; j < local; ++j) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = begin[static_cast<size_t>(block * local + j)];
      for (int64_t i = 0; i < rows[block * local + j]; ++i, ++next) {
        row[next] = first + i;
        slot[first + i] = next;
      }
    }
  }
  return received;
}

}  // namespace keyseat_dispatcher_alltoall
