// recompute/none: every region is a plain call, no unit is replayed.
#pragma once

#include <string>
#include <vector>

#include "keyseat/interfaces/recompute.h"

namespace keyseat_recompute_none {

class None final : public keyseat::Recompute {
 public:
  static keyseat::OptionSchema options() { return {}; }
  None(const keyseat::Options& options, const keyseat::PluginHost& host);

 protected:
  std::vector<at::Tensor> run_(keyseat::Region region, const keyseat::RegionFunction& fn,
                               std::vector<at::Tensor> inputs,
                               keyseat::StepContext& context) override;
};

}  // namespace keyseat_recompute_none
