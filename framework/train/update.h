// The end of a step: global norm, clip, optimizer.
#pragma once

#include <vector>

#include "keyseat/chain.h"
#include "keyseat/config.h"
#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/optimizer.h"
#include "keyseat/interfaces/strategy.h"
#include "keyseat/mesh.h"

namespace keyseat::train {

// Square root of the sum of squared gradients over all ranks, each logical element once.
double global_norm(Strategy& strategy, const Mesh& mesh, Comm& comm);

// min(1, clip / (norm + 1e-6)), as torch; 1 where clip is 0.
double clip_coefficient(double norm, double clip);

// Steps the shards of the blocks that saw rows in this step. Keeps the list of shards that take
// part.
class Update {
 public:
  Update(const Chain& chain, Strategy& strategy, Optimizer& optimizer);
  void step(double lr, double grad_scale, const RowCounts& total);

 private:
  Strategy& strategy_;
  Optimizer& optimizer_;
  struct Owner {
    std::string block;
    DimSymbol rows;
  };
  std::map<std::string, Owner> owner_;  // by global parameter name
};

}  // namespace keyseat::train
