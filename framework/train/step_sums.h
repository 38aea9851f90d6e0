// What a step adds up over the ranks for its report: losses and routing statistics.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "keyseat/chain.h"
#include "keyseat/executor.h"
#include "keyseat/interfaces/comm.h"

namespace keyseat::train {

struct StepSums {
  std::map<std::string, double> losses;            // unweighted sums of every loss term
  std::map<std::string, at::Tensor> router_stats;  // by layer: [2, E] (probabilities, counts)
};

// The executor's sums of this step over all ranks of the world, in one all-reduce whose size
// depends on the chain only. Every rank calls it and gets the same.
StepSums sum_over_ranks(const Executor& executor, Comm& comm, int64_t world);

}  // namespace keyseat::train
