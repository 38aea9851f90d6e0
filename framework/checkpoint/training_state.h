// Masters and optimizer states in and out of a checkpoint: whole logical parameters under their
// global names ("master/decoder.layers.3.q_proj", "exp_avg/decoder.layers.3.q_proj"), so that a run
// of any strategy and any number of ranks can load them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_info.h"
#include "keyseat/chain.h"
#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/optimizer.h"
#include "keyseat/interfaces/strategy.h"

namespace keyseat::checkpoint {

// Where a run keeps its state. All calls are made by every rank.
struct RunParts {
  const Chain& chain;
  Strategy& strategy;
  Optimizer& optimizer;
  Comm& comm;
  int64_t rank = 0, world = 1;
};

// Every rank writes its share of the tensors into `folder` (which exists); all ranks get the list
// of all files. Error R7 on every rank where one could not write.
std::vector<CheckpointFile> write_state(const RunParts& parts, const std::string& folder);

// Checks sizes and hashes of all files and that every tensor fits, before anything is changed; then
// loads. States that the checkpoint does not have for a whole block stay zero: the returned blocks
// (frozen then, or another optimizer). Error R6 or R7 with every problem.
std::vector<std::string> read_state(const RunParts& parts, const std::string& folder,
                                    const CheckpointInfo& info);

}  // namespace keyseat::checkpoint
