// The optimizer's part of a step: which shards take part, with which learning rate and decay.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "keyseat/chain.h"
#include "keyseat/config.h"
#include "keyseat/interfaces/optimizer.h"
#include "keyseat/interfaces/strategy.h"

namespace keyseat::train {

// Steps the shards of the blocks that saw rows in this step. A block that saw none on any rank
// keeps values, moments and count.
class Update {
 public:
  // `factors` by block; a block that is not in it has 1.
  Update(const Chain& chain, Strategy& strategy, Optimizer& optimizer,
         std::map<std::string, BlockFactors> factors);
  void step(double lr, double grad_scale, const RowCounts& total);

  // Optimizer steps that each block has taken: the count of all of its parameters.
  const std::map<std::string, int64_t>& updates() const { return updates_; }
  void set_updates(std::map<std::string, int64_t> updates);

 private:
  Strategy& strategy_;
  Optimizer& optimizer_;
  std::map<std::string, BlockFactors> factors_;
  std::map<std::string, std::string> block_of_;            // by global parameter name
  std::map<std::string, std::vector<DimSymbol>> rows_of_;  // what the units of a block work on
  std::map<std::string, int64_t> updates_;
};

}  // namespace keyseat::train
