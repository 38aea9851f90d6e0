// All-gather, local sort; local sum, reduce-scatter. Legend: T tokens of this rank, G tokens of all
// ranks of the dispatch group, K choices, M dispatched rows.
#pragma once

#include "keyseat/nn/row_route.h"

namespace keyseat_dispatcher_allgather {

using Counts = std::vector<int64_t>;

// The rows of the local experts, sorted by expert, then by gathered token.
struct Local {
  at::Tensor source_M;    // i64: gathered token of every row
  at::Tensor slot_GK;     // i64: row of every gathered (token, choice), -1 where not of this rank
  Counts rows_of_expert;  // [local experts]
};

// Experts first .. first + local - 1 live here. index_GK: i64 on the host.
Local sort_local(const at::Tensor& index_GK, int64_t first, int64_t local);

class Route final : public keyseat::nn::RowRoute {
 public:
  // group: null where this rank is alone. tokens: T of every rank of the group.
  Route(keyseat::CommGroup* group, Counts tokens, Local local, bool combine_in_fp32,
        at::Device device);
  keyseat::nn::Weighted send(const keyseat::nn::Weighted& tokens) const override;
  keyseat::nn::Weighted bring_back(const keyseat::nn::Weighted& rows) const override;

 private:
  keyseat::CommGroup* group_;
  Counts tokens_;
  Local local_;
  bool combine_in_fp32_;
};

}  // namespace keyseat_dispatcher_allgather
