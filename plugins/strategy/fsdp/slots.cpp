#include "slots.h"

namespace keyseat_strategy_fsdp {

namespace {

constexpr int kGradientSlots = 2;

}  // namespace

SlotPlan::SlotPlan(const ModelLayout& layout, const Settings& settings) {
  const size_t groups = layout.groups.size();
  const size_t wanted =
      settings.reshard == Reshard::kNever ? groups : static_cast<size_t>(settings.prefetch) + 1;
  value_bytes.assign(std::min(groups, wanted), 0);
  for (size_t group = 0; group < groups; ++group) {
    int64_t bytes = 0;
    for (int bucket : layout.groups[group].buckets) bytes += layout.buckets[bucket].slot_bytes();
    int64_t& slot = value_bytes[group % value_bytes.size()];
    slot = std::max(slot, bytes);
  }
  gradient_slot.assign(groups, -1);
  int reduced = 0;
  for (size_t group = groups; group-- > 0;) {  // in the order of backward
    int64_t elements = 0;
    for (int bucket : layout.groups[group].buckets) {
      if (layout.buckets[bucket].is_reduced()) elements += layout.buckets[bucket].elements;
    }
    if (elements == 0) continue;
    const int slot = settings.accumulate_sharded ? reduced % kGradientSlots : reduced;
    ++reduced;
    gradient_slot[group] = slot;
    if (slot == static_cast<int>(gradient_elements.size())) gradient_elements.push_back(0);
    gradient_elements[slot] = std::max(gradient_elements[slot], elements);
  }
}

double SlotPlan::bytes() const {
  int64_t sum = 0;
  for (int64_t bytes : value_bytes) sum += bytes;
  for (int64_t elements : gradient_elements) sum += elements * int64_t{sizeof(float)};
  return static_cast<double>(sum);
}

}  // namespace keyseat_strategy_fsdp
