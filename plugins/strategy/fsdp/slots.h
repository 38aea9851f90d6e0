// Sizes of the memory that groups share: where whole values and whole gradients lie for a while.
#pragma once

#include <vector>

#include "keyseat/sharding/layout.h"
#include "settings.h"

namespace keyseat_strategy_fsdp {

struct SlotPlan {
  SlotPlan(const ModelLayout& layout, const Settings& settings);
  double bytes() const;  // of all slots

  // Values: a group's slot is its index mod the number of slots, so its values have one address for
  // the whole run. With resharding off every group has a slot of its own.
  std::vector<int64_t> value_bytes;
  size_t value_slot(int group) const { return static_cast<size_t>(group) % value_bytes.size(); }
  // Gradients that have to be reduced: two slots, of which one fills up while the other is reduced;
  // where whole gradients are accumulated, one per group.
  std::vector<int64_t> gradient_elements;
  std::vector<int> gradient_slot;  // by group; -1: nothing to reduce
};

}  // namespace keyseat_strategy_fsdp
