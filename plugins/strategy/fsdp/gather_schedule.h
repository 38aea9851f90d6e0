// When which group is gathered and released: the next ones before a group runs, into fixed slots.
#pragma once

#include <memory>
#include <vector>

#include "keyseat/sharding/gather_group.h"
#include "slots.h"
#include "trace.h"

namespace keyseat_strategy_fsdp {

class GatherSchedule {
 public:
  GatherSchedule(std::vector<std::unique_ptr<GatherGroup>>& groups, const Settings& settings,
                 const SlotPlan& plan, at::Device device, Trace& trace,
                 std::vector<std::string> names);

  // What will run: `rows` forward passes, each followed by a backward pass where training.
  void plan(size_t rows, bool training);
  // The group is the next one of the plan: its values are readable from here, and the gathers of
  // those behind it are on their way.
  void enter(int group);
  void leave(int group);
  // The shards have changed: what is gathered is out of date.
  void invalidate();

 private:
  enum class State { kReleased, kBegun, kReady };
  bool begin(int group);  // false: its slot is still in use
  void release(int group);

  std::vector<std::unique_ptr<GatherGroup>>& groups_;
  const Settings& settings_;
  const SlotPlan& plan_;
  Trace& trace_;
  const std::vector<std::string> names_;  // of the groups
  std::vector<at::Tensor> slots_;         // bytes
  std::vector<int> holder_;               // by slot: a group, or -1
  at::Tensor poison_;                     // NaN of any type
  std::vector<State> states_;             // by group
  std::vector<int> sequence_;
  size_t position_ = 0;  // of the group that is to be entered next
};

}  // namespace keyseat_strategy_fsdp
