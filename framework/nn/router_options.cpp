#include "keyseat/nn/router_options.h"

#include <fmt/format.h>

namespace keyseat::nn {

OptionSchema router_option_schema() {
  return {Option("router_capacity_factor", OptionType::kFloat)
              .defaults_to(0.0)
              .range(0, 65536)
              .level(OptionLevel::kTuning)
              .doc("Each rank sends an expert at most ceil(tokens * top-k / experts * factor) "
                   "rows; what is above is dropped and counted. 0: no limit."),
          Option("router_capacity", OptionType::kEnum)
              .choices({"drop", "pad"})
              .defaults_to("drop")
              .level(OptionLevel::kTuning)
              .doc("drop: at most the capacity. pad: exactly the capacity, filled up with rows of "
                   "zeros, so that all sizes are known beforehand."),
          Option("router_drop_policy", OptionType::kEnum)
              .choices({"probability", "position"})
              .defaults_to("probability")
              .level(OptionLevel::kTuning)
              .doc("What is kept up to the capacity: the choices of largest weight, or the first "
                   "tokens."),
          Option("router_forced_balance", OptionType::kBool)
              .defaults_to(false)
              .level(OptionLevel::kDeveloper)
              .doc("Deals the experts out at random, each equally often, whatever the router "
                   "says: for measuring speed, never for training.")};
}

Problems validate_router_options(const Options& options) {
  Problems problems;
  if (options.get_float("router_capacity_factor") > 0) return problems;
  for (const char* name : {"router_capacity", "router_drop_policy"}) {
    if (!options.given(name)) continue;
    problems.push_back(options.problem(
        Code::kC4Combination, name,
        fmt::format("{} is given, but router_capacity_factor is 0", name),
        "without a capacity nothing is dropped or padded", "set router_capacity_factor"));
  }
  return problems;
}

void read_router_options(const Options& options, RouterOptions& router) {
  router.capacity_factor = options.get_float("router_capacity_factor");
  router.capacity_pad =
      router.capacity_factor > 0 && options.get_string("router_capacity") == "pad";
  router.drop_policy = options.get_string("router_drop_policy") == "position"
                           ? DropPolicy::kPosition
                           : DropPolicy::kProbability;
  router.forced_balance = options.get_bool("router_forced_balance");
}

std::string routing_label(const RouterOptions& router) {
  std::string label = router.forced_balance ? "forced balance" : "";
  if (router.capacity_factor > 0) {
    label += fmt::format("{}capacity {:g}, {} by {}", label.empty() ? "" : ", ",
                         router.capacity_factor, router.capacity_pad ? "drop and pad" : "drop",
                         router.drop_policy == DropPolicy::kPosition ? "position" : "probability");
  }
  return label;
}

}  // namespace keyseat::nn
