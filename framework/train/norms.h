// Global norms of gradients and parameters, in all and by block.
#pragma once

#include <map>
#include <string>

#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/strategy.h"
#include "keyseat/mesh.h"

namespace keyseat::train {

struct Norms {
  double gradient = 0;                            // of all trained blocks together
  std::map<std::string, double> block_gradient;   // by block
  std::map<std::string, double> block_parameter;  // by block; empty where not asked for
};

// Over all ranks, each logical element once. `parameters`: their norms, too, which reads all
// masters.
Norms global_norms(Strategy& strategy, const Mesh& mesh, Comm& comm, bool parameters);

// min(1, clip / (norm + 1e-6)), as torch; 1 where clip is 0.
double clip_coefficient(double norm, double clip);

}  // namespace keyseat::train
