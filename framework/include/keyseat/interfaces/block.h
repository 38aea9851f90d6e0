// Kind `block`: a part of a model, given as an ordered list of units.
//
// Contract (7-contracts section 1). A unit is the smallest thing a strategy places, gathers, cuts
// or recomputes. It holds no tensors and no per-step state: everything comes in through Params,
// Tensors and StepContext. It never writes into, returns, or returns a view of an input. T, P, V, N
// = 0 are ordinary sizes. Called from one thread per micro-batch; several micro-batches may be in
// flight. Ownership: the chain owns the units; a block instance outlives its units.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "keyseat/batch.h"
#include "keyseat/context.h"
#include "keyseat/hf_map.h"
#include "keyseat/options.h"
#include "keyseat/params.h"
#include "keyseat/plugin.h"
#include "keyseat/tensors.h"

namespace keyseat {

inline constexpr int kBlockAbi = 3;

// Work of a unit for one workload shape; forward only. Counted as 6-measuring defines: GEMMs and
// attention.
struct WorkloadShape {
  double tokens = 0, patches = 0, visual_tokens = 0, supervised = 0;
  double sequence_squares = 0;  // sum over samples of length^2
  double frame_squares = 0;     // sum over frames of patches^2
  double element_bytes = 4;     // of the compute dtype
};
struct Cost {
  double flops = 0;             // multiply and add count as two
  double activation_bytes = 0;  // kept from forward to backward without recompute, inputs included
};

struct UnitSpec {
  std::string name;  // within the block: "layers.3"; the chain prefixes the block's name
  std::vector<ParamSpec> params;
  std::vector<TensorSpec> reads;  // batch, derived or written by an earlier unit
  std::vector<TensorSpec> writes;
  std::string after;  // anchor: place this unit behind the writer of this name; empty: in order
  int64_t top_k = 0;  // MoE units: experts per token
  // MoE units: what bends the routing ("forced balance", "capacity 1.25, drop"), printed on every
  // line of a run; empty: natural routing.
  std::string routing;
  bool capacity_pad = false;  // MoE units: plans ask the dispatcher for blocks of one size
  // Which rows its parameters meet on a rank. The gradient of a parameter is summed over the axes
  // that split them; over other axes it is equal on all ranks, and counted once.
  Layout layout = Layout::kWhole;
  DimSymbol rows = DimSymbol::kT;  // what it works on: a unit whose rows are 0 on all ranks in a
                                   // step is not stepped
};

class KEYSEAT_API Unit {
 public:
  virtual ~Unit();
  const UnitSpec& spec() const { return spec_; }
  // Checks names and dtypes of inputs and outputs around forward_ (R4 with the unit's name).
  Tensors forward(const Params& params, const Tensors& inputs, StepContext& context) const;
  Cost cost(const WorkloadShape& shape) const { return cost_(shape); }

 protected:
  explicit Unit(UnitSpec spec) : spec_(std::move(spec)) {}
  // inputs: exactly spec().reads; returns exactly spec().writes. Ordinary LibTorch autograd.
  virtual Tensors forward_(const Params& params, const Tensors& inputs,
                           StepContext& context) const = 0;
  virtual Cost cost_(const WorkloadShape& shape) const = 0;

 private:
  UnitSpec spec_;
};

// A pure, non-differentiable function of the batch (rope tables, indices), computed once per
// micro-batch on each rank that reads it; never crosses a pipeline cut. Two blocks may declare one
// name with an equal spec; the first one is used.
struct DerivedSpec {
  TensorSpec tensor;
  std::vector<std::string> reads;  // batch tensors only
  std::function<at::Tensor(const Tensors& batch, const RowFacts& facts)> make;
};

class KEYSEAT_API Block {
 public:
  virtual ~Block();
  // In chain order. Called once.
  virtual std::vector<std::unique_ptr<Unit>> units() = 0;
  virtual std::vector<DerivedSpec> derived() { return {}; }  // (optional)
  virtual InputSpec input_spec() const { return {}; }        // (optional)
};

// A block plugin is a class with
//   static OptionSchema options();
//   static Problems validate(const Options&);        (optional)
//   static std::vector<HfModel> hf_models();         (optional) model_types of config.json that it
//   serves Plugin(const Options&, const PluginHost&);
// registered by KEYSEAT_PLUGIN(Block, Plugin, ...) in plugin.cpp.

}  // namespace keyseat
