// The groups of ranks that a rank shares parameters with.
#pragma once

#include "keyseat/interfaces/comm.h"
#include "keyseat/mesh.h"
#include "keyseat/params.h"

namespace keyseat::sharding {

// A null group is one of this rank alone: nothing travels.
struct RankGroups {
  struct Domain {
    CommGroup* shard = nullptr;  // hold the shards of one bucket
    // The same ranks, for gathers of units' parameters: they neither queue behind what the
    // computation waits for, nor in front of it.
    CommGroup* gather = nullptr;
    CommGroup* replicate = nullptr;  // hold equal shards
  };
  Domain dense, expert;
  CommGroup* expert_slices = nullptr;  // hold the experts of one parameter

  RankGroups() = default;
  // Makes the groups, in the same order on every rank.
  RankGroups(const Mesh& mesh, Comm& comm);

  const Domain& of(ParamDomain domain) const {
    return domain == ParamDomain::kExpert ? expert : dense;
  }
};

}  // namespace keyseat::sharding
