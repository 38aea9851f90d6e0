// recompute/full: whole units are run again.
#pragma once

#include <string>
#include <vector>

#include "keyseat/interfaces/recompute.h"

namespace keyseat_recompute_full {

class Full final : public keyseat::Recompute {
 public:
  static keyseat::OptionSchema options();
  Full(const keyseat::Options& options, const keyseat::PluginHost& host);

  keyseat::Problems check_names(const std::vector<keyseat::UnitName>& units) const override;
  bool replays_unit(const std::string& block, const std::string& unit) const override;

 protected:
  std::vector<at::Tensor> run_(keyseat::Region region, const keyseat::RegionFunction& fn,
                               std::vector<at::Tensor> inputs,
                               keyseat::StepContext& context) override;

 private:
  keyseat::Options options_;
  std::vector<std::string> except_;
};

}  // namespace keyseat_recompute_full
