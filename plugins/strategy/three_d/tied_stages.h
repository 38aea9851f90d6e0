// Parameters that several stages use: one logical parameter, with a copy of its shards on each.
#pragma once

#include <memory>
#include <vector>

#include "keyseat/sharding/bucket.h"
#include "stages.h"

namespace keyseat_strategy_three_d {

class TiedStages {
 public:
  TiedStages(const keyseat::Chain& chain, const Stages& stages,
             const keyseat::sharding::ModelLayout& layout,
             std::vector<std::unique_ptr<keyseat::sharding::Bucket>>& buckets,
             const keyseat::Mesh& mesh, keyseat::Comm& comm);

  void sum_gradients();  // of all stages, into the shard of each
  void follow_owner();   // the owner's shards have been updated

 private:
  struct Tie {
    keyseat::sharding::Bucket* bucket;
    keyseat::CommGroup* stages;
    int64_t owner;  // its place in that group
  };
  std::vector<Tie> ties_;  // that this stage is part of, in chain order of the owners
};

}  // namespace keyseat_strategy_three_d
