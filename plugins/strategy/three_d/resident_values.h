// The whole values of the stage's parameters, which stay in memory and are gathered once per step.
#pragma once

#include <memory>
#include <vector>

#include "keyseat/sharding/gather_group.h"

namespace keyseat_strategy_three_d {

class ResidentValues {
 public:
  ResidentValues(std::vector<std::unique_ptr<keyseat::sharding::GatherGroup>>& groups,
                 const keyseat::sharding::ModelLayout& layout, at::Device device, bool overlap);

  void invalidate() { stale_ = true; }  // the shards have changed
  // Gathers of all groups are on their way, in chain order, where something has changed; without
  // `overlap` they have arrived.
  void begin();
  void need(int group);  // its values are readable from here
  void finish();         // those of all groups

 private:
  std::vector<std::unique_ptr<keyseat::sharding::GatherGroup>>& groups_;
  const bool overlap_;
  std::vector<at::Tensor> memory_;  // bytes, by group
  std::vector<bool> pending_;       // by group
  bool stale_ = true;
};

}  // namespace keyseat_strategy_three_d
