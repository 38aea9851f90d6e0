// What all ranks of a run have to have in common.
#pragma once

#include <string>
#include <vector>

#include "keyseat/config.h"
#include "keyseat/registry.h"

namespace keyseat::train {

// One line per plugin file (with its digest) and per option that must be equal on every rank.
std::vector<std::string> agreement_lines(const RunConfig& config, const Registry& registry);

// Compute threads of this rank: what was asked for, else the cores divided by the ranks of the
// host; 0 where the environment (OMP_NUM_THREADS) or LibTorch decides.
int threads_of_rank(int64_t asked, int64_t local_world);

}  // namespace keyseat::train
