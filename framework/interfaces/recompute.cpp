// Kind `recompute`: anchor, default, and the wrapper around a region.
#include "keyseat/interfaces/recompute.h"

namespace keyseat {

Recompute::~Recompute() = default;

Problems Recompute::check_names(const std::vector<UnitName>& /*units*/) const { return {}; }

bool Recompute::replays_unit(const std::string& /*block*/, const std::string& /*unit*/) const {
  return false;
}

std::vector<at::Tensor> Recompute::run(Region region, const RegionFunction& fn,
                                       std::vector<at::Tensor> inputs, StepContext& context) {
  return run_(region, fn, std::move(inputs), context);
}

}  // namespace keyseat
