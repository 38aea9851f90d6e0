// Legend: as in tables.h. Weights travel beside their rows: n of them between nodes, e inside.
#include "route.h"

#include "keyseat/interfaces/comm.h"
#include "keyseat/mutation.h"
#include "keyseat/nn/exchange.h"
#include "keyseat/nn/row_moves.h"

namespace keyseat_dispatcher_hybrid_ep {

using keyseat::nn::all_to_all;
using keyseat::nn::collect_weights;
using keyseat::nn::gather_rows;
using keyseat::nn::scatter_weights;
using keyseat::nn::sum_rows;
using keyseat::nn::Weighted;

namespace {

Weighted forwards(keyseat::CommGroup& group, const Weighted& rows, const Stage& stage) {
  if (KEYSEAT_MUTATED("no exchange of zero rows") && rows.rows.size(0) == 0) {
    const at::Tensor nothing_R1 = rows.rows.new_zeros({keyseat::nn::sum_of(stage.received), 1});
    const auto like = [&](const at::Tensor& sent) {
      return sent.defined()
                 ? nothing_R1.to(sent.scalar_type()).expand({-1, sent.size(1)}).contiguous()
                 : sent;
    };
    return {like(rows.rows), like(rows.weight)};
  }
  return all_to_all(group, rows, stage.received, stage.sent);
}

Weighted backwards(keyseat::CommGroup& group, const Weighted& rows, const Stage& stage) {
  return all_to_all(group, rows, stage.sent, stage.received);
}

}  // namespace

Route::Route(Groups groups, const Topology& topology, Tables tables, int64_t experts,
             at::Device device)
    : groups_(groups),
      tables_(std::move(tables)),
      node_experts_(experts / topology.nodes),
      local_experts_(experts / topology.expert_ranks()) {
  for (at::Tensor* table :
       {&tables_.between.source, &tables_.between.slot, &tables_.weight_slot_TK,
        &tables_.inside.source, &tables_.inside.slot, &tables_.weight_source, &tables_.weight_slot,
        &tables_.source_M, &tables_.weight_source_M, &tables_.slot_BK}) {
    if (table->defined()) *table = table->to(device);
  }
}

Weighted Route::send(const Weighted& tokens) const {
  const bool weighted = tokens.weight.defined();
  Weighted rows = tokens;
  if (weighted) {
    rows.weight =
        scatter_weights(tokens.weight, tables_.weight_slot_TK, tables_.sent_between * node_experts_)
            .view({tables_.sent_between, node_experts_});
  }
  if (groups_.between != nullptr) {
    rows.rows = gather_rows(rows.rows, tables_.between.source);
    rows = forwards(*groups_.between, rows, tables_.between);
  }
  if (groups_.inside != nullptr) {
    rows.rows = gather_rows(rows.rows, tables_.inside.source);
    if (weighted) {
      rows.weight = gather_rows(rows.weight.view({-1, local_experts_}), tables_.weight_source);
    }
    rows = forwards(*groups_.inside, rows, tables_.inside);
  }
  Weighted sorted{gather_rows(rows.rows, tables_.source_M), {}};
  if (weighted) {
    sorted.weight = gather_rows(rows.weight.view({-1, 1}), tables_.weight_source_M).squeeze(1);
  }
  return sorted;
}

// Sums run over local experts, then over the ranks of a node, then over nodes, each in this order,
// in fp32, rounded to the rows' type before they cross.
Weighted Route::bring_back(const Weighted& sorted) const {
  const bool weighted = sorted.weight.defined();
  Weighted rows{sum_rows(sorted.rows, tables_.slot_BK), {}};
  if (weighted) {
    rows.weight =
        scatter_weights(sorted.weight, tables_.weight_source_M, tables_.arrived * local_experts_)
            .view({tables_.arrived, local_experts_});
  }
  if (groups_.inside != nullptr) {
    rows = backwards(*groups_.inside, rows, tables_.inside);
    rows.rows = sum_rows(rows.rows, tables_.inside.slot);
    if (weighted) {
      rows.weight =
          sum_rows(rows.weight, tables_.weight_slot).view({tables_.arrived_in_node, node_experts_});
    }
  }
  if (groups_.between != nullptr) {
    rows = backwards(*groups_.between, rows, tables_.between);
    rows.rows = sum_rows(rows.rows, tables_.between.slot);
  }
  if (weighted) {
    rows.weight = collect_weights(rows.weight.reshape({-1}), tables_.weight_slot_TK);
  }
  return rows;
}

}  // namespace keyseat_dispatcher_hybrid_ep
