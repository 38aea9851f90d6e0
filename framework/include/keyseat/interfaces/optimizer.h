// Kind `optimizer`: updates shards of parameters.
//
// Contract (7-contracts section 7). A shard is a range of one logical parameter in a unit's flat
// buffer. All tensors are 1-D fp32 and contiguous. Every update is a function of the shard's own
// tensors and numbers; no state is kept outside `state`, so that a checkpoint of the shards is a
// checkpoint of the optimizer. No allocation per step.
#pragma once

#include <string>
#include <vector>

#include "keyseat/options.h"
#include "keyseat/params.h"
#include "keyseat/plugin.h"

namespace keyseat {

inline constexpr int kOptimizerAbi = 2;

struct OptimizerShard {
  const ParamSpec* spec = nullptr;
  std::string name;  // global name of the parameter
  // Element range of the flattened parameter. Of a parameter whose piece on this rank is not one
  // range of it (rows are cut, ParamSpec::split): of the flattened piece.
  int64_t begin = 0, end = 0;
  at::Tensor master;              // [end - begin], updated in place
  at::Tensor grad;                // [end - begin], read only
  std::vector<at::Tensor> state;  // one per state_names(), zero at the start, updated in place
  at::Tensor compute;  // [end - begin] compute-dtype copy to refresh, or undefined where master is
                       // the value
  double lr = 0;       // of this step, schedule and block factor applied
  double weight_decay_scale = 1;
  int64_t step = 1;       // updates of this parameter including this one
  double grad_scale = 1;  // clip coefficient, applied to grad on the fly
};

class KEYSEAT_API Optimizer {
 public:
  virtual ~Optimizer();
  virtual bool needs_whole_matrix() const {
    return false;
  }  // (optional) then shards are whole parameters
  virtual std::vector<std::string> state_names() const = 0;  // "exp_avg", "exp_avg_sq"
  virtual double base_lr() const = 0;                        // option `lr`: the schedule's peak
  void step(std::vector<OptimizerShard>& shards);            // checks, then step_

 protected:
  virtual void step_(std::vector<OptimizerShard>& shards) = 0;
};

}  // namespace keyseat
