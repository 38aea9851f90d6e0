// Bytes that collectives move, by class of link. The payload that has to move, whatever algorithm a
// communicator uses: an all_gather sends this rank's part to every other rank, a reduce_scatter
// every part to its owner, an all_reduce is one after the other.
#pragma once

#include <array>
#include <cstdint>

#include "comm/call_record.h"

namespace keyseat::comm {

struct LinkBytes {
  int64_t intra = 0, inter = 0;  // inside a node of ranks_per_node ranks, between nodes
  LinkBytes& operator+=(const LinkBytes& other) {
    intra += other.intra;
    inter += other.inter;
    return *this;
  }
  int64_t total() const { return intra + inter; }
};

struct Traffic {
  std::array<LinkBytes, kCallKinds> sent{}, received{};  // by CallKind
  std::array<int64_t, kCallKinds> calls{};
  LinkBytes sent_in_all() const;
  LinkBytes received_in_all() const;
};

// What one call adds. ranks_per_node: consecutive ranks that count as one node.
KEYSEAT_API void add_call(Traffic& traffic, const CallRecord& record, int64_t ranks_per_node);

}  // namespace keyseat::comm
