// The executor: runs a range of the chain forward and backward for one micro-batch.
//
// Each unit is its own small autograd graph: inputs detached, outputs kept; backward pops the
// gradients of the versions the unit wrote, runs, and adds into the versions it read. All state of
// a micro-batch lives in its Store; several may be in flight.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "keyseat/chain.h"
#include "keyseat/context.h"
#include "keyseat/params.h"

namespace keyseat {

// What happens around a unit. Implemented by strategies.
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

class Store;

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
};

class KEYSEAT_API Executor {
 public:
  Executor(const Chain& chain, ExecutorServices services);
  ~Executor();
  Executor(const Executor&) = delete;

  // Before the first micro-batch of a step. Loss terms by name ("ce", "aux", "z"); one that the
  // chain writes and the map lacks is R4.
  void begin_step(int64_t step, std::map<std::string, LossTerm> loss_terms);
  // Batch tensors are moved into the store; `training` false runs everything under no-grad and
  // drops what is not read.
  std::unique_ptr<Store> begin(Row row, int64_t micro_batch, bool training);
  void forward(Store& store, int first, int last);   // units [first, last)
  void backward(Store& store, int first, int last);  // the same range in reverse
  // Losses and outputs.
  at::Tensor tensor(const Store& store,
                    const std::string& name) const;  // latest version of it, undefined if dropped
  // Ranges of several processes (pipeline): put a version in, take a gradient out, and the other
  // way round.
  void put(Store& store, int version, at::Tensor tensor);
  at::Tensor take_gradient(Store& store, int version);
  void add_gradient(Store& store, int version, at::Tensor gradient);

  const Chain& chain() const { return chain_; }
  // Unweighted local sums of every loss term over the micro-batches of this step: fp64 on the host.
  std::map<std::string, double> losses() const;
  // Sums of router.stats over the micro-batches of this step: layer -> fp32 [2, E] on the CPU
  // (probabilities, counts).
  const std::map<std::string, at::Tensor>& router_stats() const { return router_stats_; }
  const std::vector<UnitSeconds>& seconds() const { return seconds_; }

 private:
  friend class Store;
  const Chain& chain_;
  ExecutorServices services_;
  int64_t step_ = 0;
  std::map<std::string, LossTerm> loss_terms_;
  std::map<std::string, std::vector<at::Tensor>> loss_sums_;
  std::map<std::string, at::Tensor> router_stats_;
  std::vector<UnitSeconds> seconds_;
};

}  // namespace keyseat
