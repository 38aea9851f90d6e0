// What a chain that has been built says about itself.
#include "keyseat/chain.h"

namespace keyseat {

std::vector<int> Chain::live_at(int cut) const {
  std::vector<int> live;
  for (size_t i = 0; i < versions_.size(); ++i) {
    const Version& version = versions_[i];
    if (version.writer < 0 || version.writer >= cut || version.readers.empty()) continue;
    if (version.readers.back() >= cut) live.push_back(static_cast<int>(i));
  }
  return live;
}

double Chain::passes(int index) const {
  const ChainUnit& unit = units_[index];
  if (!unit.runs_backward) return 1;
  bool input_gradient = false;
  for (size_t i = 0; i < unit.reads.size(); ++i) {
    input_gradient |=
        versions_[unit.reads[i]].needs_grad && unit.unit->spec().reads[i].differentiable;
  }
  return 1.0 + (unit.trainable ? 1 : 0) + (input_gradient ? 1 : 0);
}

int64_t Chain::count(bool trainable_only) const {
  int64_t total = 0;
  for (int index = 0; index < size(); ++index) {
    const ChainUnit& unit = units_[index];
    if (trainable_only && !unit.trainable) continue;
    for (int i = 0; i < static_cast<int>(unit.owners.size()); ++i) {
      if (unit.owners[i] == ParamRef{index, i}) total += unit.unit->spec().params[i].numel();
    }
  }
  return total;
}

int64_t Chain::parameter_count() const { return count(false); }
int64_t Chain::trainable_count() const { return count(true); }

}  // namespace keyseat
