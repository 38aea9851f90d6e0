#include "none.h"

namespace keyseat_recompute_none {

None::None(const keyseat::Options& /*options*/, const keyseat::PluginHost& /*host*/) {}

std::vector<at::Tensor> None::run_(keyseat::Region /*region*/, const keyseat::RegionFunction& fn,
                                   std::vector<at::Tensor> inputs,
                                   keyseat::StepContext& /*context*/) {
  return fn(inputs);
}

}  // namespace keyseat_recompute_none
