// Kind `recompute`: decides what is kept from forward and what is run again in backward.
//
// Contract (7-contracts section 2). The policy is a function of the config only. Routing, plans and
// counts are never decided twice: they go through ctx.keep. Results are bitwise those of `none`.
#pragma once

#include <string>
#include <vector>

#include "keyseat/context.h"
#include "keyseat/options.h"
#include "keyseat/plugin.h"
#include "keyseat/status.h"

namespace keyseat {

inline constexpr int kRecomputeAbi = 3;

// A unit of the chain: layers.3 of block decoder.
struct UnitName {
  std::string block, unit;
};

class KEYSEAT_API Recompute {
 public:
  virtual ~Recompute();
  // (optional) Problems (C4) where the options name something that the chain does not have; asked
  // before anything is allocated.
  virtual Problems check_names(const std::vector<UnitName>& units) const;
  // Whether the executor keeps only the inputs of this unit and runs it again before its backward
  // (optional).
  virtual bool replays_unit(const std::string& block, const std::string& unit) const;
  // Runs fn(inputs) so that its results and gradients are those of a plain call.
  std::vector<at::Tensor> run(Region region, const RegionFunction& fn,
                              std::vector<at::Tensor> inputs, StepContext& context);

 protected:
  virtual std::vector<at::Tensor> run_(Region region, const RegionFunction& fn,
                                       std::vector<at::Tensor> inputs, StepContext& context) = 0;
};

}  // namespace keyseat
