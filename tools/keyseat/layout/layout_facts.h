// What a configuration puts on its ranks, as numbers: `keyseat train --dry-run`.
#pragma once

#include <string>
#include <vector>

#include "keyseat/config.h"
#include "keyseat/interfaces/strategy.h"
#include "keyseat/registry.h"
#include "tools/keyseat/chain/chain_facts.h"

namespace keyseat::tool::layout {

struct StageFacts {
  std::string first_unit, last_unit;
  int64_t units = 0;
  int64_t parameters = 0;  // of its units, that one rank computes with
  double flops = 0;        // of one rank: its share of a row, forward and backward
  MemoryEstimate memory;   // of one of its ranks
  double static_bytes() const { return memory.parameters + memory.gradients + memory.optimizer; }
};

struct LayoutFacts {
  std::string strategy, dispatcher, optimizer, precision;
  Mesh mesh;
  chain::RowShape row;
  std::vector<StageFacts> stages;
  size_t slowest = 0;
};

// For `world` ranks, of which nothing but this process need be there. Throws Error with every rule
// that the layout breaks.
LayoutFacts collect(const RunConfig& config, Registry& registry, int64_t world,
                    chain::RowShape row);

std::string layout_text(const LayoutFacts& facts);
std::string layout_json(const LayoutFacts& facts);

}  // namespace keyseat::tool::layout
