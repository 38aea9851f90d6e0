// The groups of ranks that a rank shares parameters with.
#pragma once

#include <array>

#include "keyseat/interfaces/comm.h"
#include "keyseat/mesh.h"
#include "keyseat/sharding/cut.h"

namespace keyseat::sharding {

// A null group is one of this rank alone: nothing travels.
struct RankGroups {
  // Of the parameters with one kind of holders.
  struct Domain {
    CommGroup* shard = nullptr;  // hold the shards of one bucket
    // The same ranks, for what goes on beside the computation: it neither queues behind what that
    // waits for, nor in front of it.
    CommGroup* beside = nullptr;
    CommGroup* replicate = nullptr;  // hold equal shards; beside the computation if not sharded
    CommGroup* pieces = nullptr;     // hold the pieces of one parameter, by place
  };

  RankGroups() = default;
  // Makes the groups, in the same order on every rank. `sharded`: as LayoutRules has it.
  RankGroups(const Mesh& mesh, Comm& comm, bool sharded = true);

  const Domain& of(Holders holders) const { return domains_[static_cast<size_t>(holders)]; }

 private:
  std::array<Domain, std::size(kAllHolders)> domains_;
};

}  // namespace keyseat::sharding
