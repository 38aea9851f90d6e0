#include "resident_values.h"

#include <ATen/ops/empty.h>

#include "keyseat/memory.h"

namespace keyseat_strategy_three_d {

using namespace keyseat;

ResidentValues::ResidentValues(std::vector<std::unique_ptr<sharding::GatherGroup>>& groups,
                               const sharding::ModelLayout& layout, at::Device device, bool overlap)
    : groups_(groups), overlap_(overlap), pending_(groups.size(), false) {
  const MemoryScope scope(MemoryCategory::kParameters);
  for (const sharding::GroupLayout& group : layout.groups) {
    int64_t bytes = 0;
    for (int bucket : group.buckets) bytes += layout.buckets[bucket].slot_bytes();
    memory_.push_back(at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device)));
  }
}

void ResidentValues::begin() {
  if (!std::exchange(stale_, false)) return;
  for (size_t group = 0; group < groups_.size(); ++group) {
    groups_[group]->begin_gather(static_cast<char*>(memory_[group].data_ptr()));
    pending_[group] = true;
    if (!overlap_) need(static_cast<int>(group));
  }
}

void ResidentValues::need(int group) {
  if (!pending_[static_cast<size_t>(group)]) return;
  groups_[static_cast<size_t>(group)]->finish_gather();
  pending_[static_cast<size_t>(group)] = false;
}

void ResidentValues::finish() {
  for (size_t group = 0; group < groups_.size(); ++group) need(static_cast<int>(group));
}

}  // namespace keyseat_strategy_three_d
