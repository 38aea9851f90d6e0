#include "tables.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "keyseat/mutation.h"

namespace keyseat_dispatcher_hybrid_ep {
namespace {

int64_t* data(const at::Tensor& tensor) { return tensor.mutable_data_ptr<int64_t>(); }

bool any(const uint8_t* map, int64_t first, int64_t count) {
  return map != nullptr &&
         std::any_of(map + first, map + first + count, [](uint8_t bit) { return bit != 0; });
}

at::Tensor table_of(const Counts& values) {
  at::Tensor table = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), data(table));
  return table;
}

// Sends row r to every destination d with needs(r, d). block > 0: exactly that many slots each.
template <typename Needed>
Stage list_sends(int64_t rows, int64_t destinations, int64_t block, const Needed& needed) {
  Stage stage;
  stage.slot = at::full({rows, destinations}, -1, at::kLong);
  int64_t* slot = data(stage.slot);
  Counts source;
  for (int64_t d = 0; d < destinations; ++d) {
    const size_t begin = source.size();
    for (int64_t row = 0; row < rows; ++row) {
      if (!needed(row, d)) continue;
      slot[row * destinations + d] = static_cast<int64_t>(source.size());
      source.push_back(row);
    }
    if (block > 0) source.resize(begin + static_cast<size_t>(block), -1);
    stage.sent.push_back(static_cast<int64_t>(source.size() - begin));
  }
  stage.source = table_of(source);
  return stage;
}

// What the rows of one sender need, in the order in which they are sent: those of `rows` map rows
// of width `width` that need one of the `count` experts from `first` on.
void list_arrivals(const uint8_t* map, int64_t rows, int64_t width, int64_t first, int64_t count,
                   int64_t block, Needs& needs, Counts& received) {
  const size_t begin = needs.size();
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* needed = map + row * width + first;
    if (any(needed, 0, count)) needs.push_back(needed);
  }
  if (block > 0) needs.resize(begin + static_cast<size_t>(block), nullptr);
  received.push_back(static_cast<int64_t>(needs.size() - begin));
}

// Between nodes: one row per (token, node). Gives what the rows that arrive in this rank need of
// this node.
Needs plan_between(const Topology& topology, int64_t tokens, int64_t experts, const Maps& maps,
                   const Limits& limits, Tables& tables) {
  const int64_t padded = maps.own_TE.size(0), of_node = experts / topology.nodes;
  const uint8_t* own = maps.own_TE.const_data_ptr<uint8_t>();
  Needs needs;
  if (topology.nodes == 1) {
    for (int64_t token = 0; token < tokens; ++token) needs.push_back(own + token * experts);
    tables.sent_between = tokens;
    return needs;
  }
  const int64_t block = limits.bounded ? padded : 0;
  tables.between = list_sends(tokens, topology.nodes, block, [&](int64_t token, int64_t node) {
    return any(own, token * experts + node * of_node, of_node);
  });
  tables.sent_between = tables.between.source.size(0);
  const uint8_t* arriving = maps.arriving_NTE.const_data_ptr<uint8_t>();
  for (int64_t node = 0; node < topology.nodes; ++node) {
    list_arrivals(arriving + node * padded * experts, padded, experts, topology.node * of_node,
                  of_node, block, needs, tables.between.received);
  }
  return needs;
}

// Inside the node: one row per (arrived row, rank). Gives what the rows that arrive at this rank
// need of its experts.
Needs plan_inside(const Topology& topology, const Needs& in_node, int64_t local_experts,
                  const Maps& maps, const Limits& limits, Tables& tables) {
  if (topology.per_node == 1) return in_node;
  const int64_t rows = topology.nodes * maps.own_TE.size(0);
  const int64_t block = limits.bounded ? rows : 0;
  const auto arrived = static_cast<int64_t>(in_node.size());
  const auto owner = [&](int64_t rank) { return topology.expert_rank_of(rank); };
  tables.inside = list_sends(arrived, topology.per_node, block, [&](int64_t row, int64_t rank) {
    return any(in_node[static_cast<size_t>(row)], owner(rank) * local_experts, local_experts);
  });

  // Weights go as the blocks of e columns that a rank owns; slices of one expert share a block.
  const int64_t owners = topology.expert_ranks_per_node();
  const at::Tensor& source = tables.inside.source;
  tables.weight_source = at::empty(source.sizes(), at::kLong);
  tables.weight_slot = at::full({arrived * owners, topology.slices}, -1, at::kLong);
  int64_t sent = 0;
  for (int64_t rank = 0; rank < topology.per_node; ++rank) {
    for (int64_t i = 0; i < tables.inside.sent[static_cast<size_t>(rank)]; ++i, ++sent) {
      const int64_t row = source.const_data_ptr<int64_t>()[sent];
      const int64_t from = row < 0 ? -1 : row * owners + owner(rank);
      data(tables.weight_source)[sent] = from;
      const bool counts = !KEYSEAT_MUTATED("one slice is enough") || rank % topology.slices == 0;
      if (from >= 0 && counts) {
        data(tables.weight_slot)[from * topology.slices + rank % topology.slices] = sent;
      }
    }
  }

  Needs needs;
  const uint8_t* map = maps.local_RNTe.const_data_ptr<uint8_t>();
  for (int64_t rank = 0; rank < topology.per_node; ++rank) {
    list_arrivals(map + rank * rows * local_experts, rows, local_experts, 0, local_experts, block,
                  needs, tables.inside.received);
  }
  return needs;
}

// To the experts: a row for each (arrived row, local expert), sorted by expert, then by arrival.
// Above the limit, pairs of the rows that arrived last are dropped.
void plan_experts(const Needs& needs, int64_t local_experts, const Limits& limits, Tables& tables) {
  const int64_t limit = limits.bounded ? limits.rows : std::numeric_limits<int64_t>::max();
  const auto arrived = static_cast<int64_t>(needs.size());
  tables.rows_of_expert.assign(static_cast<size_t>(local_experts), 0);
  int64_t kept = 0, most = 1;
  const auto for_each_kept = [&](const auto& visit) {
    int64_t pairs = 0;
    for (int64_t row = 0; row < arrived; ++row) {
      if (needs[static_cast<size_t>(row)] == nullptr) continue;
      for (int64_t e = 0; e < local_experts; ++e) {
        if (needs[static_cast<size_t>(row)][e] != 0 && pairs++ < limit) visit(row, e);
      }
    }
    return pairs;
  };
  Counts of_row(needs.size(), 0);
  const int64_t pairs = for_each_kept([&](int64_t row, int64_t e) {
    ++tables.rows_of_expert[static_cast<size_t>(e)];
    most = std::max(most, ++of_row[static_cast<size_t>(row)]);
    ++kept;
  });
  tables.overflow = pairs - kept;

  Counts next(static_cast<size_t>(local_experts), 0);
  std::exclusive_scan(tables.rows_of_expert.begin(), tables.rows_of_expert.end(), next.begin(),
                      int64_t{0});
  const int64_t rows = limits.bounded ? limits.rows : kept;
  const int64_t unused = KEYSEAT_MUTATED("tail rows count") ? 0 : -1;
  tables.source_M = at::full({rows}, unused, at::kLong);
  tables.weight_source_M = at::full({rows}, unused, at::kLong);
  tables.slot_BK = at::full({arrived, most}, -1, at::kLong);
  std::fill(of_row.begin(), of_row.end(), 0);
  int64_t* source = data(tables.source_M);
  int64_t* weight_source = data(tables.weight_source_M);
  int64_t* slot = data(tables.slot_BK);
  for_each_kept([&](int64_t row, int64_t e) {
    const int64_t m = next[static_cast<size_t>(e)]++;
    source[m] = row;
    weight_source[m] = row * local_experts + e;
    slot[row * most + of_row[static_cast<size_t>(row)]++] = m;
  });
}

// A choice's weight lies beside the row that carries the token to the node of its expert.
at::Tensor weight_slots(const Topology& topology, const at::Tensor& index_TK, int64_t experts,
                        const Stage& between) {
  const int64_t of_node = experts / topology.nodes, top_k = index_TK.size(1);
  const int64_t* index = index_TK.const_data_ptr<int64_t>();
  at::Tensor weight_slot_TK = at::empty(index_TK.sizes(), at::kLong);
  for (int64_t i = 0; i < index_TK.numel(); ++i) {
    int64_t& slot = data(weight_slot_TK)[i];
    slot = -1;
    if (index[i] < 0) continue;
    const int64_t token = i / top_k, node = index[i] / of_node;
    const int64_t row = topology.nodes == 1
                            ? token
                            : between.slot.const_data_ptr<int64_t>()[token * topology.nodes + node];
    slot = row * of_node + index[i] % of_node;
  }
  return weight_slot_TK;
}

}  // namespace

at::Tensor dense_map(const at::Tensor& topk_index_TK, int64_t padded, int64_t experts) {
  const int64_t top_k = topk_index_TK.size(1);
  const int64_t* index = topk_index_TK.const_data_ptr<int64_t>();
  at::Tensor map_TE = at::zeros({padded, experts}, at::kByte);
  uint8_t* map = map_TE.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < topk_index_TK.numel(); ++i) {
    const int64_t expert =
        KEYSEAT_MUTATED("padding is routed") ? std::max<int64_t>(index[i], 0) : index[i];
    if (expert >= 0) map[i / top_k * experts + expert] = 1;
  }
  return map_TE;
}

at::Tensor columns_by_rank(const Topology& topology, const at::Tensor& map_rows_E) {
  const int64_t rows = map_rows_E.size(0), experts = map_rows_E.size(1);
  const int64_t local = experts / topology.expert_ranks();
  const int64_t first = topology.node * (experts / topology.nodes);
  at::Tensor columns = at::empty({topology.per_node * rows, local}, at::kByte);
  const uint8_t* map = map_rows_E.const_data_ptr<uint8_t>();
  uint8_t* output = columns.mutable_data_ptr<uint8_t>();
  for (int64_t rank = 0; rank < topology.per_node; ++rank) {
    const int64_t column = first + topology.expert_rank_of(rank) * local;
    for (int64_t row = 0; row < rows; ++row, output += local) {
      std::copy_n(map + row * experts + column, local, output);
    }
  }
  return columns;
}

Tables make_tables(const Topology& topology, const at::Tensor& topk_index_TK, int64_t experts,
                   const Maps& maps, const Limits& limits) {
  const int64_t local_experts = experts / topology.expert_ranks();
  Tables tables;
  const Needs in_node =
      plan_between(topology, topk_index_TK.size(0), experts, maps, limits, tables);
  tables.arrived_in_node = static_cast<int64_t>(in_node.size());
  tables.weight_slot_TK = weight_slots(topology, topk_index_TK, experts, tables.between);
  const Needs needs = plan_inside(topology, in_node, local_experts, maps, limits, tables);
  tables.arrived = static_cast<int64_t>(needs.size());
  plan_experts(needs, local_experts, limits, tables);
  return tables;
}

}  // namespace keyseat_dispatcher_hybrid_ep
