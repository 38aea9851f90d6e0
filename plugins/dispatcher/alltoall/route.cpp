#include "route.h"

#include "keyseat/interfaces/comm.h"
#include "keyseat/mutation.h"
#include "keyseat/nn/exchange.h"
#include "keyseat/nn/row_moves.h"

namespace keyseat_dispatcher_alltoall {

using keyseat::nn::all_to_all;
using keyseat::nn::begin_all_gather;
using keyseat::nn::begin_reduce_scatter;
using keyseat::nn::collect_weights;
using keyseat::nn::Exchange;
using keyseat::nn::gather_rows;
using keyseat::nn::scatter_weights;
using keyseat::nn::sum_rows;
using keyseat::nn::Weighted;

namespace {

at::Tensor gather_weights(const at::Tensor& weight, const at::Tensor& source) {
  return weight.defined() ? gather_rows(weight.unsqueeze(1), source).squeeze(1) : weight;
}

// Partial results of slices travel in fp32 and are rounded once, after the sum.
at::Tensor widened(const at::Tensor& rows) {
  return rows.scalar_type() == at::kBFloat16 ? rows.to(at::kFloat) : rows;
}

}  // namespace

Route::Route(Groups groups, Sorted sorted, Received received, at::Device device)
    : groups_(groups), sorted_(std::move(sorted)), received_(std::move(received)) {
  const size_t local = sorted_.rows_of_expert.size() / static_cast<size_t>(groups_.expert_degree);
  to_expert_rank_.assign(static_cast<size_t>(groups_.expert_degree), 0);
  for (size_t e = 0; e < sorted_.rows_of_expert.size(); ++e) {
    to_expert_rank_[e / local] += sorted_.rows_of_expert[e];
  }
  for (at::Tensor* table :
       {&sorted_.source_S, &sorted_.slot_TK, &received_.row_M, &received_.slot_R1}) {
    if (table->defined()) *table = table->to(device);
  }
}

Weighted Route::send(const Weighted& tokens) const {
  Weighted rows{gather_rows(tokens.rows, sorted_.source_S), {}};
  if (tokens.weight.defined()) {
    rows.weight = scatter_weights(tokens.weight, sorted_.slot_TK, rows.rows.size(0));
  }
  if (groups_.expert != nullptr) {
    rows = all_to_all(*groups_.expert, rows, received_.from_expert_rank, to_expert_rank_);
  }
  if (groups_.expert_tensor != nullptr) {
    const Counts& counts = received_.of_expert_tensor_rank;
    Exchange moved = begin_all_gather(*groups_.expert_tensor, rows.rows, counts);
    Exchange weighed = begin_all_gather(*groups_.expert_tensor, rows.weight, counts);
    rows = {moved.wait(), weighed.wait()};
  }
  if (KEYSEAT_MUTATED("expert gradients times EP") && !tokens.weight.defined()) {
    rows.rows.mul_(static_cast<double>(groups_.expert_degree));
  }
  if (!received_.row_M.defined()) return rows;
  return {gather_rows(rows.rows, received_.row_M), gather_weights(rows.weight, received_.row_M)};
}

Weighted Route::bring_back(const Weighted& sorted) const {
  Weighted rows = sorted;
  if (received_.row_M.defined()) {
    const at::Tensor slot_R = received_.slot_R1.squeeze(1);
    rows = {gather_rows(rows.rows, slot_R), gather_weights(rows.weight, slot_R)};
  }
  if (groups_.expert_tensor != nullptr) {
    const Counts& counts = received_.of_expert_tensor_rank;
    Exchange moved = begin_reduce_scatter(*groups_.expert_tensor, widened(rows.rows), counts);
    Exchange weighed = begin_reduce_scatter(*groups_.expert_tensor, rows.weight, counts);
    rows = {moved.wait().to(sorted.rows.scalar_type()), weighed.wait()};
  }
  if (groups_.expert != nullptr) {
    rows = all_to_all(*groups_.expert, rows, to_expert_rank_, received_.from_expert_rank);
  }
  Weighted tokens{sum_rows(rows.rows, sorted_.slot_TK), {}};
  if (rows.weight.defined()) tokens.weight = collect_weights(rows.weight, sorted_.slot_TK);
  return tokens;
}

}  // namespace keyseat_dispatcher_alltoall
