// What `keyseat chain` says about a model, as numbers.
#pragma once

#include <string>
#include <vector>

#include "keyseat/interfaces/strategy.h"

namespace keyseat::tool::chain {

struct UnitFacts {
  std::string name;
  int64_t parameters = 0;  // owned: a tied parameter counts at its first unit
  int64_t experts = 0;     // of these, of routed experts
  double active = 0;       // parameters that one token meets
  double flops = 0;        // forward of the row
  double activation_bytes = 0;
  int64_t live_bytes = 0;  // what would cross a pipeline cut in front of the unit
  bool trained = false, replayed = false;
};

struct BlockFacts {
  std::string name, plugin;
  bool trained = false;
  std::vector<UnitFacts> units;
};

struct RowShape {
  int64_t tokens = 4096;      // of the row, visual tokens included
  int64_t visual_tokens = 0;  // of one image
};

struct ChainFacts {
  std::vector<BlockFacts> blocks;  // units in the order of the chain within each block
  RowShape row;
  std::string strategy, optimizer, recompute, precision;
  MemoryEstimate memory;  // of one rank without sharding
  double dry_run_seconds = 0;
};

struct Totals {
  int64_t parameters = 0, experts = 0;
  double active = 0, flops = 0, activation_bytes = 0;
};
Totals totals(const BlockFacts& block);
Totals totals(const ChainFacts& facts);

std::string chain_text(const ChainFacts& facts, bool units);
std::string chain_json(const ChainFacts& facts);

}  // namespace keyseat::tool::chain
