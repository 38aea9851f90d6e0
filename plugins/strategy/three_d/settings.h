// Options of strategy/three_d.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "keyseat/interfaces/strategy.h"
#include "keyseat/sharding/layout.h"
#include "order.h"

namespace keyseat_strategy_three_d {

struct Settings {
  explicit Settings(const keyseat::Options& options);

  // True where the degrees divide the world; else check_degrees() says what is wrong.
  bool fits(int64_t world) const;
  keyseat::MeshDegrees degrees(int64_t world) const;

  Pipeline pipeline;
  int64_t expert = 1, expert_tensor = 1;
  std::vector<std::string> stages;     // first units of all chunks but the first; empty: auto
  std::optional<int64_t> stage_bytes;  // of a rank
  int64_t row_tokens = 0, row_patches = 0;
  int64_t min_bytes = 0;  // of a gather group
};

keyseat::OptionSchema option_schema();

// Problems (C4) of the world and the experts, each at its option.
keyseat::Problems check_degrees(const keyseat::Options& options, const Settings& settings,
                                int64_t world, const keyseat::Chain& chain);

}  // namespace keyseat_strategy_three_d
