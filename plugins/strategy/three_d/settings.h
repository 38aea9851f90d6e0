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
  // As they are given, whatever the world; without data ranks.
  keyseat::MeshDegrees given_degrees() const;
  int64_t model_ranks() const { return tensor * context * pipeline.stages; }  // of one data rank

  Pipeline pipeline;
  int64_t tensor = 1, context = 1, expert = 1, expert_tensor = 1;
  bool sequence_parallel = false, context_ring = false;
  bool shard_optimizer = true;
  bool overlap = true;
  int64_t fixed_tokens = 0;            // of every row in training; 0: as it comes
  std::vector<std::string> stages;     // first units of all chunks but the first; empty: auto
  std::optional<int64_t> stage_bytes;  // of a rank
  int64_t row_tokens = 0, row_patches = 0;
  int64_t min_bytes = 0;  // of a gather group
};

keyseat::OptionSchema option_schema();

// Problems (C4) of the world and the model, each at its option; all there are.
keyseat::Problems check_degrees(const keyseat::Options& options, const Settings& settings,
                                int64_t world, const keyseat::Chain& chain);

}  // namespace keyseat_strategy_three_d
