#include "keyseat/sharding/check_experts.h"

#include <fmt/format.h>

namespace keyseat::sharding {

Problems check_experts(const Options& options, int64_t degree, const Chain& chain) {
  Problems problems;
  std::set<int64_t> counts;
  for (const ChainUnit& unit : chain.units()) {
    for (const ParamSpec& param : unit.unit->spec().params) {
      if (param.domain != ParamDomain::kExpert || !counts.insert(param.shape[0]).second) continue;
      if (param.shape[0] % degree == 0) continue;
      problems.push_back(options.problem(
          Code::kC4Combination, "expert",
          fmt::format("expert {} does not divide the {} experts of {}", degree, param.shape[0],
                      unit.name),
          "expert-parallel rank r owns experts r*e to r*e+e-1, equally many on every rank",
          "choose a divisor of the number of experts"));
    }
  }
  if (counts.empty() && degree > 1) {
    problems.push_back(
        options.problem(Code::kC4Combination, "expert",
                        fmt::format("expert is {}, but the model has no routed experts", degree),
                        "the degree would have no effect", "leave expert at 1"));
  }
  return problems;
}

}  // namespace keyseat::sharding
