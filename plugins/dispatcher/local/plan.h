// Where every row goes. Legend: T tokens, K choices, M = routed (token, choice) pairs, E experts,
// N virtual ranks.
#pragma once

#include "keyseat/interfaces/dispatcher.h"

namespace keyseat_dispatcher_local {

// Virtual rank r holds tokens [r*T/N, (r+1)*T/N) and owns experts [r*E/N, (r+1)*E/N).
struct Plan final : keyseat::DispatchPlan {
  // Stage 1, on the rank of the token: its rows in the order (expert, token), the ranks one behind
  // the other.
  at::Tensor source_M;  // i64: token of every sent row
  at::Tensor slot_TK;   // i64: sent row of every (token, choice), -1 where not routed
  // Stage 2, on the rank of the expert, only with N > 1: received rows lie in the order (rank of
  // the token, expert, token); experts want (expert, rank, token).
  at::Tensor received_M;        // i64: received row of every expert-sorted row
  at::Tensor sorted_M1;         // i64: the inverse
  std::vector<int64_t> pieces;  // [N * N] rows from rank to rank, row-major by sender
  at::Tensor counts_E;          // i64: rows of every expert
  std::vector<int64_t> host_counts;
};

// Throws R4 for an index outside -1..E-1. The tables lie on the device of the index; of a meta
// tensor, whose values are unknown, all choices count as routed to expert 0.
std::shared_ptr<Plan> make_plan(const at::Tensor& topk_index_TK, int64_t experts,
                                int64_t virtual_ranks);

}  // namespace keyseat_dispatcher_local
