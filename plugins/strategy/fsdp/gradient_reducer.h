// From whole gradients of a group to sums in the shards, behind its backward.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "keyseat/sharding/gather_group.h"
#include "slots.h"
#include "trace.h"

namespace keyseat_strategy_fsdp {

// Losses are scaled by global counts already, so every reduction is a SUM: of dense parameters over
// the shard axis, then over replicas once per step; of experts over the ranks that hold them.
class GradientReducer {
 public:
  GradientReducer(std::vector<std::unique_ptr<GatherGroup>>& groups,
                  std::vector<std::unique_ptr<Bucket>>& buckets, const RankGroups& ranks,
                  const Settings& settings, const SlotPlan& plan, at::Device device, Trace& trace,
                  std::vector<std::string> names);

  void begin_window();  // a step of accumulation
  void before_backward(int group);
  // `last`: of the window.
  void after_backward(int group, bool last);
  void finish();

 private:
  struct Part {
    Bucket* bucket;
    at::Tensor input, output;  // alive until the reduction is done
    bool add;                  // output into the gradient
    std::unique_ptr<keyseat::Work> work;
  };
  struct Pending {
    int group;
    std::vector<Part> parts;
  };
  void reduce(int group);
  void complete_first();
  void sum_over_replicas();
  // Of the mutations.
  static bool nothing_came(const GatherGroup& group);
  void scale_experts(bool one_shard_only);

  std::vector<std::unique_ptr<GatherGroup>>& groups_;
  std::vector<std::unique_ptr<Bucket>>& buckets_;
  const RankGroups& ranks_;
  const Settings& settings_;
  Trace& trace_;
  const std::vector<std::string> names_;
  const SlotPlan& plan_;
  std::vector<at::Tensor> memory_;  // of whole gradients, by slot
  std::deque<Pending> pending_;     // in the order in which they were begun
};

}  // namespace keyseat_strategy_fsdp
