// StepContext: everything a unit may know or use beside its parameters and inputs. Passed, never
// static.
#pragma once

#include <any>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "keyseat/batch.h"
#include "keyseat/export.h"
#include "keyseat/mesh.h"
#include "keyseat/regions.h"

namespace keyseat {

class Comm;
class Dispatcher;
class Params;
class Recompute;
class TapSink;

// fast: what training uses. naive: the plain oracle beside every kernel.
enum class Kernels { kFast, kNaive };

using RegionFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// What one call of a unit sees. Built by the executor for each (micro-batch, unit, call); `kept`
// lives in the Store.
class KEYSEAT_API StepContext {
 public:
  struct Kept {
    std::string key;
    std::any value;
  };
  struct State {
    std::string unit;    // "decoder.layers.3"
    std::string plugin;  // "block/qwen3_moe", for messages
    const RowFacts* row = nullptr;
    int64_t seed = 0, step = 0, micro_batch = 0;
    bool training = true;  // false in eval: no gradient, no statistics
    bool replay = false;   // the unit or region is run again for backward
    at::ScalarType compute_dtype = at::kFloat;
    at::Device device = at::kCPU;
    Kernels kernels = Kernels::kFast;
    bool aux_pooled = true;  // loss.aux.scope: routing counts pooled over layers, or layer by layer
    const Mesh* mesh = nullptr;
    Comm* comm = nullptr;
    Dispatcher* dispatcher = nullptr;
    Recompute* recompute = nullptr;
    TapSink* taps = nullptr;
    std::vector<Kept>* kept = nullptr;
    const Params* params = nullptr;  // of this unit
    double* dispatcher_seconds =
        nullptr;  // time spent inside the dispatcher, for the component report
  };
  explicit StepContext(State state) : state_(std::move(state)) {}

  // While it lives, `keep` returns the stored values. A recompute plugin holds one around every
  // second run of a region; the executor around that of a unit.
  class KEYSEAT_API ReplayScope {
   public:
    explicit ReplayScope(StepContext& context)
        : context_(context), before_(std::exchange(context.state_.replay, true)) {}
    ~ReplayScope() { context_.state_.replay = before_; }
    ReplayScope(const ReplayScope&) = delete;

   private:
    StepContext& context_;
    bool before_;
  };

  const State& state() const { return state_; }
  const std::string& unit() const { return state_.unit; }
  const RowFacts& row() const { return *state_.row; }
  bool training() const { return state_.training; }
  bool replay() const { return state_.replay; }
  at::ScalarType compute_dtype() const { return state_.compute_dtype; }
  Kernels kernels() const { return state_.kernels; }
  bool aux_pooled() const { return state_.aux_pooled; }
  const Mesh& mesh() const { return *state_.mesh; }
  Dispatcher& dispatcher() const { return *state_.dispatcher; }

  // Runs fn(inputs) under the recompute policy. fn can be called again, until the backward of this
  // unit is over; it uses only its inputs, this unit's Params and this context (both live that
  // long; locals of the unit do not, so capture them by value). Capturing another tensor that needs
  // grad is R4.
  std::vector<at::Tensor> region(Region region, const RegionFunction& fn,
                                 std::vector<at::Tensor> inputs);
  // The check behind that rule, for a recompute plugin that calls fn itself: throws R4 where the
  // graph of `outputs` ends in a leaf that is neither one of `inputs` nor a parameter of this unit.
  void check_captures(Region region, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& outputs) const;

  // Runs `make` once per (micro-batch, unit, key) and returns the stored value on replay: top-k
  // indices, dispatch plans, host counts. Using one key twice in a call is R4, and so is
  // one on replay that the first run did not have.
  template <typename T>
  T keep(const std::string& key, const std::function<T()>& make) {
    return std::any_cast<T>(keep_any(key, [&]() -> std::any { return make(); }));
  }

  // Does nothing unless somebody asked for `name` (parity, numerics reports). The full name is
  // "UNIT.name".
  bool tapped(const std::string& name) const;
  void tap(const std::string& name, const at::Tensor& tensor);

  // In-place SUM over every axis that splits the tokens of this micro-batch (data, context, tensor
  // with sequence parallel). Same calls on every rank, whatever the data.
  void sum_over_token_ranks(at::Tensor& tensor);

  // A seed that depends on (seed, step, samples of the row, unit, region) only.
  uint64_t random_seed(Region region) const;

 private:
  const std::any& keep_any(const std::string& key, const std::function<std::any()>& make);
  State state_;
};

// Receives taps. Implementations copy what they want to keep.
class KEYSEAT_API TapSink {
 public:
  virtual ~TapSink();
  virtual bool wants(const std::string& name) const = 0;
  virtual void receive(const std::string& name, const at::Tensor& tensor) = 0;
};

}  // namespace keyseat
