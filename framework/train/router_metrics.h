// What the routers of a step did, by MoE layer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "keyseat/chain.h"

namespace keyseat::train {

struct RouterMetrics {
  std::vector<int64_t> load;  // rows of each expert
  double load_entropy = 0;    // of the shares of `load`, over that of an even load: 1 is even
  double router_entropy = 0;  // the same of the mean probabilities
  int64_t dropped = 0;        // top-k choices of real tokens that no expert worked on
};

// By layer. `stats`: router.stats.LAYER [2, E] of the step, summed over its micro-batches and all
// ranks, which have `tokens` real tokens.
std::map<std::string, RouterMetrics> router_metrics(const Chain& chain,
                                                    const std::map<std::string, at::Tensor>& stats,
                                                    int64_t tokens);

// -sum p log p / log n of values that are normalised first; 1 where n is 1, 0 where all are zero.
double relative_entropy(const std::vector<double>& values);

}  // namespace keyseat::train
