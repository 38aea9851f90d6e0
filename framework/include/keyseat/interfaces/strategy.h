// Kind `strategy`: places parameters on the mesh and executes the chain of units.
//
// Contract (7-contracts section 1). The strategy owns all parameter memory: masters (fp32), compute
// copies, gradient sinks. It enqueues gather(i+1) before unit i runs; units start no communication
// of parameters. Its schedule depends on the config only. It zeroes sinks once per accumulation
// window (schedule() begins one).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "keyseat/chain.h"
#include "keyseat/executor.h"
#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/optimizer.h"
#include "keyseat/mesh.h"
#include "keyseat/options.h"
#include "keyseat/plugin.h"

namespace keyseat {

inline constexpr int kStrategyAbi = 6;

// What a strategy may know before anything is allocated.
struct StrategyFacts {
  int64_t world = 1, rank = 0, ranks_per_node = 1;
  at::ScalarType compute_dtype = at::kFloat;
  at::Device device = at::kCPU;
  int64_t seed = 0;
};

struct StepPlan {
  int64_t step = 0;
  std::vector<Row> rows;  // of this data rank; moved into the executor's stores
  bool training = true;
  // Called behind the forward of every row, while its `logits` and `loss.*` can be read with
  // Executor::tensor; on the ranks that run the last unit. May be empty.
  std::function<void(int64_t micro_batch, const Executor&, const Store&)> on_forward = {};
};

// Shards of one block whose squares are summed, then summed over the mesh axes: each logical
// element once. Every rank gives the same blocks and axes in the same order, also where it holds no
// shard.
struct NormGroup {
  std::vector<at::Tensor> gradients;  // 1-D fp32
  std::vector<at::Tensor> masters;    // 1-D fp32, the parameters of these gradients
  std::vector<Axis> axes;
  std::string block;  // name of the block in the config
};

struct MemoryEstimate {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0,
         transient = 0;  // bytes per rank
};

class KEYSEAT_API Strategy : public UnitEvents {
 public:
  ~Strategy() override;
  virtual MeshDegrees degrees(int64_t world) const = 0;
  virtual Problems validate(const StrategyFacts& facts, const Chain& chain) const = 0;
  // Allocates and initialises (ParamSpec::init, a function of seed and name).
  virtual void place(const StrategyFacts& facts, const Chain& chain, const Mesh& mesh,
                     Comm& comm) = 0;
  // Lengthens the tails of a step's rows to what the layout asks for, before they are counted: the
  // padding is reported. schedule() takes rows of any length.
  virtual void pad(std::vector<Row>& rows) const;
  // Forward (and backward when training) of all rows through the executor, which is given this
  // rank's share of each (keyseat/row_share.h) where context or tensor ranks have the same rows.
  virtual void schedule(StepPlan plan, Executor& executor) = 0;
  virtual void finish() = 0;  // gradient reductions still open, tied sums
  // Optimizer shards of the trained parameters; their `state` has `states` zero tensors, allocated
  // on the first call.
  virtual std::vector<OptimizerShard>& shards(int64_t states) = 0;
  virtual std::vector<NormGroup> norm_groups() = 0;
  virtual void after_update() = 0;  // the optimizer has run: refresh what is derived from masters
  // Whole logical parameters in global shape, fp32, for checkpoints and tests; the same calls on
  // every rank.
  virtual at::Tensor read_master(int unit, int param) = 0;
  virtual void write_master(int unit, int param, const at::Tensor& value) = 0;
  virtual at::Tensor read_gradient(int unit,
                                   int param) = 0;  // after finish(); undefined where not trained
  // Whole logical optimizer states, for checkpoints: as the masters, after shards() has been
  // called. `state` is a position in Optimizer::state_names(). Undefined where the parameter is not
  // trained.
  virtual at::Tensor read_state(int unit, int param, int64_t state) = 0;
  virtual void write_state(int unit, int param, int64_t state, const at::Tensor& value) = 0;
  virtual MemoryEstimate estimate(const StrategyFacts& facts, const Chain& chain,
                                  const WorkloadShape& shape, int64_t optimizer_states) const = 0;
  // By unit: the pipeline stage that runs it, for layouts without problems. The chain is one stage
  // by default.
  virtual std::vector<int64_t> unit_stages(const StrategyFacts& facts, const Chain& chain) const;
};

}  // namespace keyseat
