// The way of the rows: sorted by expert on the rank of the token, exchanged between expert-parallel
// ranks, gathered by the ranks that hold slices of one expert (expert_tensor), sorted by local
// expert. Legend: T tokens, K choices, S sent rows, R received rows, M dispatched rows.
#pragma once

#include "keyseat/nn/row_route.h"

namespace keyseat_dispatcher_alltoall {

using Counts = std::vector<int64_t>;

// The ranks that rows travel between; null where this rank is alone on the axis.
struct Groups {
  keyseat::CommGroup* expert = nullptr;
  keyseat::CommGroup* expert_tensor = nullptr;
  int64_t expert_degree = 1, expert_tensor_degree = 1;
};

// Rows of this rank in the order (expert, token), which is the order of their destinations.
struct Sorted {
  at::Tensor source_S;    // i64: token of every row; -1 in rows that fill a block up
  at::Tensor slot_TK;     // i64: row of every (token, choice), -1 where not routed
  Counts rows_of_expert;  // [E], filled up to the capacity
};

// Received rows lie in the order (expert_tensor rank, expert rank, local expert, token).
struct Received {
  at::Tensor row_M;       // i64: received row of every dispatched row; undefined: they are the same
  at::Tensor slot_R1;     // i64: the inverse
  Counts rows_of_expert;  // [e]
  Counts from_expert_rank;       // rows that each expert-parallel peer sends to this rank
  Counts of_expert_tensor_rank;  // rows that each rank with a slice of these experts received
};

Sorted sort_by_expert(const at::Tensor& topk_index_TK, int64_t experts, int64_t capacity);
// rows[t][r][j]: what the ranks with expert_tensor coordinate t received from expert rank r for
// local expert j; `own` is this rank's t.
Received sort_received(const at::Tensor& rows_tre, int64_t own);

class Route final : public keyseat::nn::RowRoute {
 public:
  Route(Groups groups, Sorted sorted, Received received, at::Device device);
  keyseat::nn::Weighted send(const keyseat::nn::Weighted& tokens) const override;
  keyseat::nn::Weighted bring_back(const keyseat::nn::Weighted& rows) const override;

 private:
  Groups groups_;
  Sorted sorted_;
  Received received_;
  Counts to_expert_rank_;  // rows that this rank sends to each peer
};

}  // namespace keyseat_dispatcher_alltoall
