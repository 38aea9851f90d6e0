// Index tables of the three stages, made on the host from the routing maps alone: between nodes,
// inside the node, to the experts of this rank.
//
// Legend: T tokens, K choices, N nodes, R ranks of a node, E experts, n = E / N experts of a node,
// e experts of this rank; A rows that arrived from other nodes (and this one), B rows that arrived
// at this rank, M dispatched rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "topology.h"

namespace keyseat_dispatcher_hybrid_ep {

using Counts = std::vector<int64_t>;

// One exchange: rows that are sent, by destination.
struct Stage {
  at::Tensor source;      // i64 [sent]: row of the stage before; -1 in slots that carry nothing
  at::Tensor slot;        // i64 [rows before, destinations]: sent row, -1 where not needed there
  Counts sent, received;  // rows to and from every destination
};

// Which experts a row needs, 1 or 0 by expert; null for a slot that carries nothing.
using Needs = std::vector<const uint8_t*>;

struct Tables {
  Stage between;              // not used with one node
  at::Tensor weight_slot_TK;  // i64: where a choice's weight lies in [A sent, n]; -1: not routed
  Stage inside;               // not used with one rank per node
  at::Tensor weight_source;   // i64 [B sent]: block of e weights of every sent row
  at::Tensor weight_slot;     // i64 [A * expert ranks of the node, slices]: the inverse
  int64_t sent_between = 0, arrived_in_node = 0, arrived = 0;  // A sent, A, B
  at::Tensor source_M;         // i64: arrived row of every dispatched row, -1 past the used ones
  at::Tensor weight_source_M;  // i64: where its weight lies in [B, e]
  at::Tensor slot_BK;          // i64 [B, most experts of a row]: dispatched rows of an arrived row
  Counts rows_of_expert;       // [e]
  int64_t overflow = 0;        // (row, expert) pairs above the bound
};

// The two exchanges of maps that come before: what this rank's tokens need, what the tokens of its
// peers on other nodes need, and what the tokens that arrive through the ranks of this node need of
// this rank.
struct Maps {
  at::Tensor own_TE;        // u8 [padded T, E]
  at::Tensor arriving_NTE;  // u8 [N * padded T, E], by node
  at::Tensor local_RNTe;    // u8 [R * N * padded T, e], by rank of the node
};

// u8 [padded, E]: 1 where a token needs an expert.
at::Tensor dense_map(const at::Tensor& topk_index_TK, int64_t padded, int64_t experts);
// u8 [R * rows, e]: for every rank of this node, the columns of its experts.
at::Tensor columns_by_rank(const Topology& topology, const at::Tensor& map_rows_E);

struct Limits {
  bool bounded = false;  // blocks of one size between all ranks
  int64_t rows = 0;      // bounded: M
};

Tables make_tables(const Topology& topology, const at::Tensor& topk_index_TK, int64_t experts,
                   const Maps& maps, const Limits& limits);

}  // namespace keyseat_dispatcher_hybrid_ep
