// Whole gradients of the stage's parameters over a step, and their sums in the shards.
#pragma once

#include <memory>
#include <vector>

#include "keyseat/sharding/gather_group.h"

namespace keyseat_strategy_three_d {

// Losses are scaled by global counts already, so every reduction is a SUM over the ranks that hold
// a parameter, of which each has its share (sharding::ParamCut).
class GradientSums {
 public:
  // `overlap`: false: every reduction is waited for before the next unit runs.
  GradientSums(std::vector<std::unique_ptr<keyseat::sharding::GatherGroup>>& groups,
               std::vector<std::unique_ptr<keyseat::sharding::Bucket>>& buckets,
               const keyseat::sharding::RankGroups& ranks, at::Device device, bool overlap);

  void begin_window();  // a step of accumulation
  // Behind the group's last backward of the window; runs beside what follows.
  void reduce(int group);
  void finish();

 private:
  struct Part {
    keyseat::sharding::Bucket* bucket;
    at::Tensor input, output;  // alive until the reduction is done
    std::unique_ptr<keyseat::Work> work;
  };
  void begin_scatter(const keyseat::sharding::GatheredBucket& gathered);
  void complete_parts();
  void take_shares(keyseat::sharding::Bucket& bucket);
  double share_of(const keyseat::sharding::BucketLayout& layout, int slice) const;

  std::vector<std::unique_ptr<keyseat::sharding::GatherGroup>>& groups_;
  std::vector<std::unique_ptr<keyseat::sharding::Bucket>>& buckets_;
  const keyseat::sharding::RankGroups& ranks_;
  const bool overlap_;
  std::vector<at::Tensor> memory_;  // of whole gradients, by group
  std::vector<Part> parts_;         // in the order in which they were begun
};

}  // namespace keyseat_strategy_three_d
