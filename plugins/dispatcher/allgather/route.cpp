#include "route.h"

#include <ATen/ops/empty.h>

#include "keyseat/interfaces/comm.h"
#include "keyseat/nn/exchange.h"
#include "keyseat/nn/row_moves.h"

namespace keyseat_dispatcher_allgather {

using keyseat::nn::Exchange;
using keyseat::nn::Weighted;

Local sort_local(const at::Tensor& index_GK, int64_t first, int64_t local) {
  const int64_t top_k = index_GK.size(1), pairs = index_GK.numel();
  const int64_t* index = index_GK.const_data_ptr<int64_t>();
  const auto is_local = [&](int64_t i) { return index[i] >= first && index[i] < first + local; };
  Local result;
  result.rows_of_expert.assign(static_cast<size_t>(local), 0);
  for (int64_t i = 0; i < pairs; ++i) {
    if (is_local(i)) ++result.rows_of_expert[static_cast<size_t>(index[i] - first)];
  }
  Counts next(static_cast<size_t>(local), 0);  // next free row of each expert
  std::exclusive_scan(result.rows_of_expert.begin(), result.rows_of_expert.end(), next.begin(),
                      int64_t{0});
  result.source_M = at::empty({keyseat::nn::sum_of(result.rows_of_expert)}, at::kLong);
  result.slot_GK = at::empty(index_GK.sizes(), at::kLong);
  int64_t* source = result.source_M.mutable_data_ptr<int64_t>();
  int64_t* slot = result.slot_GK.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < pairs; ++i) {
    slot[i] = is_local(i) ? next[static_cast<size_t>(index[i] - first)]++ : -1;
    if (slot[i] >= 0) source[slot[i]] = i / top_k;
  }
  return result;
}

Route::Route(keyseat::CommGroup* group, Counts tokens, Local local, bool combine_in_fp32,
             at::Device device)
    : group_(group),
      tokens_(std::move(tokens)),
      local_(std::move(local)),
      combine_in_fp32_(combine_in_fp32) {
  local_.source_M = local_.source_M.to(device);
  local_.slot_GK = local_.slot_GK.to(device);
}

Weighted Route::send(const Weighted& tokens) const {
  Weighted all = tokens;
  if (group_ != nullptr) {
    Exchange moved = keyseat::nn::begin_all_gather(*group_, tokens.rows, tokens_);
    Exchange weighed = keyseat::nn::begin_all_gather(*group_, tokens.weight, tokens_);
    all = {moved.wait(), weighed.wait()};
  }
  Weighted rows{keyseat::nn::gather_rows(all.rows, local_.source_M), {}};
  if (all.weight.defined()) {
    rows.weight = keyseat::nn::scatter_weights(all.weight, local_.slot_GK, rows.rows.size(0));
  }
  return rows;
}

Weighted Route::bring_back(const Weighted& rows) const {
  // Tokens whose experts all live elsewhere get zeros from this rank.
  const bool widen = combine_in_fp32_ && rows.rows.scalar_type() == at::kBFloat16;
  Weighted all{keyseat::nn::sum_rows(widen ? rows.rows.to(at::kFloat) : rows.rows, local_.slot_GK),
               {}};
  if (rows.weight.defined()) all.weight = keyseat::nn::collect_weights(rows.weight, local_.slot_GK);
  if (group_ != nullptr) {
    Exchange moved = keyseat::nn::begin_reduce_scatter(*group_, all.rows, tokens_);
    Exchange weighed = keyseat::nn::begin_reduce_scatter(*group_, all.weight, tokens_);
    all = {moved.wait(), weighed.wait()};
  }
  all.rows = all.rows.to(rows.rows.scalar_type());
  return all;
}

}  // namespace keyseat_dispatcher_allgather
