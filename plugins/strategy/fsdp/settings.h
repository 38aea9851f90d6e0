// Options of strategy/fsdp, and the rules that a layout has to keep.
#pragma once

#include <optional>
#include <string>

#include "keyseat/interfaces/strategy.h"
#include "keyseat/sharding/layout.h"

namespace keyseat_strategy_fsdp {

using namespace keyseat::sharding;

enum class Reshard { kAuto, kAlways, kNever };

struct Settings {
  explicit Settings(const keyseat::Options& options);

  int64_t shard_degree(int64_t world) const;  // the given one, or what `replicate` leaves
  // True where the degrees divide the world; else check_layout() says what is wrong.
  bool fits(int64_t world) const;
  keyseat::MeshDegrees degrees(int64_t world) const;
  keyseat::sharding::LayoutRules layout_rules(at::ScalarType compute) const {
    return {min_bytes, compute, parameter_dtype.value_or(compute), {}};
  }

  std::optional<int64_t> shard;
  int64_t replicate = 1;
  int64_t expert = 1;
  Reshard reshard = Reshard::kAuto;
  int64_t prefetch = 1;                           // units
  int64_t min_bytes = 0;                          // of a gather group
  std::optional<at::ScalarType> parameter_dtype;  // none: the run's compute dtype
  at::ScalarType reduce_dtype = at::kFloat;
  bool accumulate_sharded = true;
  bool offload_optimizer = false;
  bool poison = false;
  std::string trace;  // file, empty: no trace
};

keyseat::OptionSchema option_schema();

// Problems (C4) of the world, the model and the device, each at its option.
keyseat::Problems check_layout(const keyseat::Options& options, const Settings& settings,
                               const keyseat::StrategyFacts& facts, const keyseat::Chain& chain);

}  // namespace keyseat_strategy_fsdp
