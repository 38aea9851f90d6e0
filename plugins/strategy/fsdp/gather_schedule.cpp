#include "gather_schedule.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "keyseat/memory.h"
#include "keyseat/mutation.h"

namespace keyseat_strategy_fsdp {

using namespace keyseat;

namespace {

constexpr int64_t kNanByte = 0xFF;  // repeated, it is a NaN in fp32 and in bf16

char* address(const at::Tensor& bytes) {
  return bytes.defined() ? static_cast<char*>(bytes.data_ptr()) : nullptr;
}

}  // namespace

GatherSchedule::GatherSchedule(std::vector<std::unique_ptr<GatherGroup>>& groups,
                               const Settings& settings, const SlotPlan& plan, at::Device device,
                               Trace& trace, std::vector<std::string> names)
    : groups_(groups),
      settings_(settings),
      plan_(plan),
      trace_(trace),
      names_(std::move(names)),
      holder_(plan.value_bytes.size(), -1),
      states_(groups.size(), State::kReleased) {
  const MemoryScope scope(MemoryCategory::kParameters);
  const auto options = at::TensorOptions().dtype(at::kByte).device(device);
  for (int64_t size : plan.value_bytes) slots_.push_back(at::empty({size}, options));
  if (settings.poison) {
    int64_t largest = 0;
    for (int64_t size : plan.value_bytes) largest = std::max(largest, size);
    poison_ = at::full({largest}, kNanByte, options);
  }
  for (const auto& group : groups_) group->release(address(poison_));
}

void GatherSchedule::plan(size_t rows, bool training) {
  sequence_.clear();
  position_ = 0;
  const int count = static_cast<int>(groups_.size());
  for (size_t row = 0; row < rows; ++row) {
    for (int group = 0; group < count; ++group) sequence_.push_back(group);
    for (int group = count - 1; training && group >= 0; --group) {
      const GroupLayout& layout = groups_[group]->layout();
      const bool gathered = layout.trained || !KEYSEAT_MUTATED("frozen_stay_released");
      if (layout.runs_backward && gathered) sequence_.push_back(group);
    }
  }
}

void GatherSchedule::enter(int group) {
  if (position_ >= sequence_.size() || sequence_[position_] != group) {
    throw Error(Problem{Code::kR4Contract,
                        {},
                        fmt::format("the group of {} runs out of turn", names_[group]),
                        "strategy/fsdp gathers in the order of Strategy::schedule()",
                        "run units through schedule() only"});
  }
  ++position_;
  if (!begin(group)) throw std::logic_error("the slot of the next group is in use");
  if (states_[group] == State::kBegun) {
    groups_[group]->finish_gather();
    trace_.end(Trace::Lane::kGather, names_[group]);
    states_[group] = State::kReady;
  }
  const size_t last =
      std::min(sequence_.size(), position_ + static_cast<size_t>(settings_.prefetch));
  for (size_t i = position_; i < last; ++i) {
    if (!begin(sequence_[i])) break;  // in their order, on every rank
  }
}

void GatherSchedule::leave(int group) {
  const bool next_again = position_ < sequence_.size() && sequence_[position_] == group;
  const bool keep =
      settings_.reshard == Reshard::kNever || (settings_.reshard == Reshard::kAuto && next_again);
  if (!keep) release(group);
}

void GatherSchedule::invalidate() {
  for (int group = 0; group < static_cast<int>(groups_.size()); ++group) {
    if (states_[group] != State::kReleased) release(group);
  }
}

bool GatherSchedule::begin(int group) {
  if (states_[group] != State::kReleased) return true;
  int& holder = holder_[plan_.value_slot(group)];
  if (holder != -1) return false;
  holder = group;
  trace_.begin(Trace::Lane::kGather, names_[group]);
  groups_[group]->begin_gather(address(slots_[plan_.value_slot(group)]));
  states_[group] = State::kBegun;
  return true;
}

void GatherSchedule::release(int group) {
  groups_[group]->release(address(poison_));
  holder_[plan_.value_slot(group)] = -1;
  states_[group] = State::kReleased;
}

}  // namespace keyseat_strategy_fsdp
