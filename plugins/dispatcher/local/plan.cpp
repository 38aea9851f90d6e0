#include "plan.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "keyseat/status.h"

namespace keyseat_dispatcher_local {
namespace {

using Table = std::vector<int64_t>;

int64_t* data(const at::Tensor& tensor) { return tensor.mutable_data_ptr<int64_t>(); }

// Rows that virtual rank `rank` sends to each expert; its tokens are [first, last).
Table count_rows(const int64_t* index, int64_t first, int64_t last, int64_t top_k,
                 int64_t experts) {
  Table rows(static_cast<size_t>(experts), 0);
  for (int64_t i = first * top_k; i < last * top_k; ++i) {
    const int64_t expert = index[i];
    if (expert < -1 || expert >= experts) {
      keyseat::Problem problem;
      problem.code = keyseat::Code::kR4Contract;
      problem.what =
          fmt::format("dispatcher/local was asked to route to expert {} of {}", expert, experts);
      problem.why = "a top-k index is -1 (not routed) or names an expert";
      problem.remedy = "check the number of experts of the layer against its router";
      throw keyseat::Error(std::move(problem));
    }
    if (expert >= 0) ++rows[static_cast<size_t>(expert)];
  }
  return rows;
}

// Index tables of stage 2 and the sizes of the pieces, from rows[rank][expert].
void plan_exchange(const std::vector<Table>& rows, int64_t experts, Plan& plan) {
  const auto ranks = static_cast<int64_t>(rows.size());
  const int64_t owned = experts / ranks;
  int64_t* received = data(plan.received_M);
  int64_t* sorted = data(plan.sorted_M1);
  int64_t buffer_begin = 0;  // of the owner's receive buffer
  int64_t next = 0;          // expert-sorted row
  plan.pieces.assign(static_cast<size_t>(ranks * ranks), 0);
  for (int64_t owner = 0; owner < ranks; ++owner) {
    // First received row of every (rank, expert) block of this owner.
    std::vector<Table> begin(rows.size(), Table(static_cast<size_t>(owned), 0));
    int64_t end = buffer_begin;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      for (int64_t e = 0; e < owned; ++e) {
        begin[rank][e] = end;
        end += rows[rank][owner * owned + e];
      }
      plan.pieces[rank * ranks + owner] = end - begin[rank][0];
    }
    for (int64_t e = 0; e < owned; ++e) {
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const int64_t size = rows[rank][owner * owned + e];
        for (int64_t i = 0; i < size; ++i, ++next) {
          received[next] = begin[rank][e] + i;
          sorted[begin[rank][e] + i] = next;
        }
      }
    }
    buffer_begin = end;
  }
}

}  // namespace

std::shared_ptr<Plan> make_plan(const at::Tensor& topk_index_TK, int64_t experts,
                                int64_t virtual_ranks) {
  const at::Tensor index_TK = topk_index_TK.is_meta() ? at::zeros(topk_index_TK.sizes(), at::kLong)
                                                      : topk_index_TK.to(at::kCPU).contiguous();
  const int64_t* index = index_TK.const_data_ptr<int64_t>();
  const int64_t tokens = index_TK.size(0);
  const int64_t top_k = index_TK.size(1);
  const auto first_token = [&](int64_t rank) { return tokens * rank / virtual_ranks; };

  auto plan = std::make_shared<Plan>();
  std::vector<Table> rows;
  plan->host_counts.assign(static_cast<size_t>(experts), 0);
  for (int64_t rank = 0; rank < virtual_ranks; ++rank) {
    rows.push_back(count_rows(index, first_token(rank), first_token(rank + 1), top_k, experts));
    for (int64_t e = 0; e < experts; ++e) plan->host_counts[e] += rows.back()[e];
  }
  const int64_t total =
      std::accumulate(plan->host_counts.begin(), plan->host_counts.end(), int64_t{0});

  plan->source_M = at::empty({total}, at::kLong);
  plan->slot_TK = at::empty({tokens, top_k}, at::kLong);
  int64_t* source = data(plan->source_M);
  int64_t* slot = data(plan->slot_TK);
  int64_t begin = 0;
  for (int64_t rank = 0; rank < virtual_ranks; ++rank) {
    Table next(static_cast<size_t>(experts), 0);  // next free row of each expert
    for (int64_t e = 0; e < experts; ++e) {
      next[e] = begin;
      begin += rows[rank][e];
    }
    for (int64_t token = first_token(rank); token < first_token(rank + 1); ++token) {
      for (int64_t i = token * top_k; i < (token + 1) * top_k; ++i) {
        slot[i] = index[i] < 0 ? -1 : next[index[i]]++;
        if (slot[i] >= 0) source[slot[i]] = token;
      }
    }
  }
  if (virtual_ranks > 1) {
    plan->received_M = at::empty({total}, at::kLong);
    plan->sorted_M1 = at::empty({total, 1}, at::kLong);
    plan_exchange(rows, experts, *plan);
  }
  plan->counts_E = at::tensor(plan->host_counts, at::kLong);
  for (at::Tensor* table :
       {&plan->source_M, &plan->slot_TK, &plan->received_M, &plan->sorted_M1, &plan->counts_E}) {
    if (table->defined()) *table = table->to(topk_index_TK.device());
  }
  return plan;
}

}  // namespace keyseat_dispatcher_local
