// Which units run on which stage.
#pragma once

#include <vector>

#include "balance.h"
#include "keyseat/executor.h"
#include "settings.h"

namespace keyseat_strategy_three_d {

class Stages {
 public:
  // Problems (C4) where the chain cannot be cut as asked; then the stages must not be used.
  static Stages build(const keyseat::Options& options, const Settings& settings,
                      const keyseat::StrategyFacts& facts, const keyseat::Chain& chain,
                      keyseat::Problems& problems);
  // One stage that runs everything.
  static Stages whole(const keyseat::Chain& chain);

  const Pipeline& pipeline() const { return pipeline_; }
  int chunks() const { return static_cast<int>(pipeline_.chunks()); }
  keyseat::UnitRange range(int chunk) const { return {begins_[chunk], begins_[chunk + 1]}; }
  int64_t stage_of(int unit) const;
  // By unit: it runs on this stage.
  std::vector<bool> units_of(int64_t stage) const;
  std::vector<keyseat::UnitRange> ranges_of(int64_t stage) const;

 private:
  Pipeline pipeline_;
  std::vector<int> begins_;  // first units of the chunks, and the end of the chain
};

// What each unit costs on one rank, for the row that the settings describe.
std::vector<Load> unit_loads(const Settings& settings, const keyseat::StrategyFacts& facts,
                             const keyseat::Chain& chain);

}  // namespace keyseat_strategy_three_d
