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

Problems check_expert_tensor(const Options& options, int64_t degree, const Chain& chain) {
  if (degree == 1) return {};
  Problems problems;
  std::set<std::pair<std::vector<int64_t>, int>> seen;  // shapes and where they are split
  for (const ChainUnit& unit : chain.units()) {
    for (const ParamSpec& param : unit.unit->spec().params) {
      if (param.domain != ParamDomain::kExpert) continue;
      if (!seen.insert({param.shape, param.slice_dim}).second) continue;
      const int64_t width = param.slice_dim < 0 ? 0 : param.shape[param.slice_dim];
      const auto parts = static_cast<int64_t>(std::max<size_t>(param.parts.size(), 1));
      const bool equal_parts = std::all_of(param.parts.begin(), param.parts.end(),
                                           [&](int64_t part) { return part * parts == width; });
      if (param.slice_dim > 0 && equal_parts && width % (parts * degree) == 0) continue;
      problems.push_back(options.problem(
          Code::kC4Combination, "expert_tensor",
          param.slice_dim < 0
              ? fmt::format("{}.{} cannot be split over expert_tensor ranks", unit.name, param.name)
              : fmt::format("expert_tensor {} does not divide the width {} of {}.{}", degree,
                            width / parts, unit.name, param.name),
          "every rank holds an equal piece of the width of its experts",
          "choose a divisor of the width, or 1"));
    }
  }
  if (seen.empty()) {
    problems.push_back(options.problem(
        Code::kC4Combination, "expert_tensor",
        fmt::format("expert_tensor is {}, but the model has no routed experts", degree),
        "the degree would have no effect", "leave expert_tensor at 1"));
  }
  return problems;
}

}  // namespace keyseat::sharding
