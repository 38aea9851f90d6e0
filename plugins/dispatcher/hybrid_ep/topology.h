// Where the ranks of a dispatch group and their experts are. Places count the ranks of the group in
// the order of mesh.group({kExpertTensor, kExpert}): the ranks that hold slices of one expert lie
// side by side, and a node holds a contiguous run of places.
#pragma once

#include "keyseat/mesh.h"
#include "keyseat/status.h"

namespace keyseat_dispatcher_hybrid_ep {

struct Topology {
  int64_t nodes = 1;
  int64_t per_node = 1;           // ranks of the group on one node
  int64_t slices = 1;             // ranks that hold slices of one expert
  int64_t node = 0;               // of this rank
  int64_t local = 0;              // place of this rank in its node
  std::vector<int64_t> ranks{0};  // global rank of every place

  int64_t size() const { return nodes * per_node; }
  int64_t place() const { return node * per_node + local; }
  int64_t expert_ranks() const { return size() / slices; }
  // Expert ranks on one node; its experts are those of these ranks, in order.
  int64_t expert_ranks_per_node() const { return per_node / slices; }
  // Experts first, first + 1, ... of a node belong to place `local` of it.
  int64_t expert_rank_of(int64_t local) const { return local / slices; }
  std::vector<int64_t> ranks_of_this_node() const;
  std::vector<int64_t> ranks_at_this_place() const;  // one per node: equal place in the node

  // For a mesh that `problems` accepts.
  static Topology of(const keyseat::Mesh& mesh);
  static keyseat::Problems problems(const keyseat::Mesh& mesh);
};

}  // namespace keyseat_dispatcher_hybrid_ep
