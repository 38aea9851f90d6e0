// What the executors of all ranks counted in a step, added up.
#pragma once

#include <map>
#include <string>

#include "keyseat/executor.h"
#include "keyseat/interfaces/comm.h"

namespace keyseat::train {

struct StepSums {
  std::map<std::string, double> losses;            // unweighted, by term
  std::map<std::string, at::Tensor> router_stats;  // layer -> fp32 [2, E] on the CPU
};

// One collective over all ranks; the same on each, since names and shapes depend on the chain only.
StepSums sum_over_ranks(const Executor& executor, Comm& comm, int64_t world);

}  // namespace keyseat::train
