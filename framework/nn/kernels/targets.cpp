#include "nn/kernels/dispatch.h"
// dispatch.h comes first: it sets the targets for highway.h.
#include <hwy/highway.h>

#include "nn/kernels/targets.h"

namespace keyseat::nn::kernels {

std::vector<Target> supported_targets() {
  std::vector<Target> targets;
  hwy::SetSupportedTargetsForTest(0);
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  for (int64_t id = 1; id != 0 && id <= usable; id <<= 1)
    if (usable & id) targets.push_back({id, hwy::TargetName(id)});
  return targets;
}

void force_target(int64_t id) {
  hwy::SetSupportedTargetsForTest(id);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace keyseat::nn::kernels
