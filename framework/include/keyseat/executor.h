// The executor: runs a range of the chain forward and backward for one micro-batch.
//
// Each unit is its own small autograd graph: inputs detached, edges of the outputs kept; backward
// pops the gradients of the versions the unit wrote, runs, and adds into the versions it read. All
// state of a micro-batch lives in its Store; several may be in flight.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "keyseat/chain.h"
#include "keyseat/context.h"
#include "keyseat/params.h"

namespace keyseat {

// What happens around a unit. Implemented by strategies. The Params of a unit stay at one address
// and keep their handles until the backward of the micro-batch is over.
class KEYSEAT_API UnitEvents {
 public:
  virtual ~UnitEvents();
  // Values readable from here to the matching after_*. `training` false: no leaf needs grad.
  virtual const Params& before_forward(int unit, bool training) = 0;
  virtual void after_forward(int unit) = 0;
  // Values readable again and, for trained parameters, sinks set.
  virtual const Params& before_backward(int unit) = 0;
  virtual void after_backward(int unit) = 0;
};

// Weight and global normaliser of a loss term; seeds its gradient. Known before the step.
struct LossTerm {
  double weight = 1;
  double normaliser = 1;  // global over all rows and ranks of the step
};

struct UnitRun;  // what a unit's forward leaves behind for its backward

// The units [first, last) of the chain.
struct UnitRange {
  int first = 0, last = 0;
};

// All state of one micro-batch: versions, their gradients, graphs and kept values.
class KEYSEAT_API Store {
 public:
  ~Store();
  const RowFacts& row() const;
  int64_t micro_batch() const;
  bool training() const;

 private:
  friend class Executor;
  struct State;
  explicit Store(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct ExecutorServices {
  Comm* comm = nullptr;
  const Mesh* mesh = nullptr;
  Dispatcher* dispatcher = nullptr;
  Recompute* recompute = nullptr;
  UnitEvents* events = nullptr;
  TapSink* taps = nullptr;
  Kernels kernels = Kernels::kFast;
  at::ScalarType compute_dtype = at::kFloat;
  at::Device device = at::kCPU;
  int64_t seed = 0;
  bool aux_pooled = true;
};

// Seconds per unit of one step, summed over micro-batches.
struct UnitSeconds {
  double forward = 0, backward = 0;
  double dispatcher = 0;  // share of both that was spent inside the dispatcher
  double host = 0;        // share of both outside of the unit's own forward and of autograd
};

class KEYSEAT_API Executor {
 public:
  Executor(const Chain& chain, ExecutorServices services);
  ~Executor();
  Executor(const Executor&) = delete;

  // Before the first micro-batch of a step. Loss terms by name ("ce", "aux", "z").
  void begin_step(int64_t step, std::map<std::string, LossTerm> loss_terms);
  // Batch tensors are moved into the store, as far as a unit of `ranges` reads them; no ranges: all
  // units will run. `training`: a loss that the chain writes and the step has no term for is R4.
  // Otherwise everything runs under no-grad.
  std::unique_ptr<Store> begin(Row row, int64_t micro_batch, bool training,
                               const std::vector<UnitRange>& ranges = {});
  // Runs the units [first, last). A version is dropped behind its last reader; what no unit reads
  // is kept only for `logits` and `loss.*`.
  void forward(Store& store, int first, int last);
  void backward(Store& store, int first, int last);  // the same range in reverse
  // The latest version of a name that is still there, else undefined.
  at::Tensor tensor(const Store& store, const std::string& name) const;
  // Ranges of several processes (pipeline): versions and gradients go in and out. take* leaves
  // nothing behind; a gradient that never came is zeros.
  void put(Store& store, int version, at::Tensor tensor);
  at::Tensor take(Store& store, int version);
  void add_gradient(Store& store, int version, const at::Tensor& gradient);
  at::Tensor take_gradient(Store& store, int version);

  const Chain& chain() const { return chain_; }
  // Unweighted local sums of every loss term over the micro-batches of this step: fp64 on the host.
  std::map<std::string, double> losses() const;
  // Sums of router.stats over the micro-batches of this step: layer -> fp32 [2, E] on the CPU
  // (probabilities, counts).
  std::map<std::string, at::Tensor> router_stats() const;
  // Host time; on a device that runs behind the host it is the time to enqueue.
  const std::vector<UnitSeconds>& seconds() const { return seconds_; }

 private:
  void forward_unit(Store::State& state, int index);
  void backward_unit(Store::State& state, int index);
  std::vector<at::Tensor> read_values(Store::State& state, int index);
  void make_derived(Store::State& state, int version);
  void make_leaves(std::vector<at::Tensor>& values, int index) const;
  std::unique_ptr<StepContext> make_context(Store::State& state, int index, const Params& params);
  std::vector<at::Tensor> call_unit(int index, const Params& params,
                                    const std::vector<at::Tensor>& inputs, StepContext& context);
  void replay(UnitRun& run, int index, const Params& params);
  void note_outputs(Store::State& state, int index, const std::vector<at::Tensor>& outputs);
  void drop_unread(Store::State& state, int index);
  at::Tensor loss_seed(int version) const;

  const Chain& chain_;
  ExecutorServices services_;
  std::vector<bool> replays_;  // by unit: the recompute policy runs it again before backward
  int64_t step_ = 0;
  std::map<std::string, LossTerm> loss_terms_;
  std::map<std::string, std::vector<at::Tensor>> loss_sums_;
  std::map<std::string, at::Tensor> router_stats_;
  std::vector<UnitSeconds> seconds_;
};

}  // namespace keyseat
