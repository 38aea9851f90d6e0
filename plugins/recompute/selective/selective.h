// recompute/selective: chosen regions inside the units are run again.
#pragma once

#include <vector>

#include "keyseat/interfaces/recompute.h"

namespace keyseat_recompute_selective {

class Selective final : public keyseat::Recompute {
 public:
  static keyseat::OptionSchema options();
  Selective(const keyseat::Options& options, const keyseat::PluginHost& host);

 protected:
  std::vector<at::Tensor> run_(keyseat::Region region, const keyseat::RegionFunction& fn,
                               std::vector<at::Tensor> inputs,
                               keyseat::StepContext& context) override;

 private:
  bool replays(keyseat::Region region) const;  // chosen, or inside a chosen one
  std::vector<keyseat::Region> chosen_;
};

}  // namespace keyseat_recompute_selective
