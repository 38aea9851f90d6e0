// Parameters: what a unit declares (ParamSpec) and what it is handed in forward and backward
// (ParamHandle).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/tensors.h"

namespace keyseat {

enum class ParamRole { kMatrix, kBias, kNorm, kEmbedding, kRouter };
enum class ParamDomain { kDense, kExpert };

// How values start when no checkpoint is given. Random numbers are a function of (seed, parameter
// name), so every layout starts from the same values.
struct Init {
  enum class Kind { kNormal, kZeros, kOnes } kind = Kind::kNormal;
  double std = 0.02;
};

// How routed experts lie in a checkpoint (4-models section 4). Keyseat's own layout of an expert
// parameter is [experts, out, in] (y = x W^T), gate rows before up rows.
enum class CheckpointLayout { kPlain, kPerExpert, kPacked, kPackedTransposed };

// How a parameter is cut over the ranks of an axis: of a dense one over `tensor`, of an expert one,
// beside its experts, over `expert_tensor`. A unit sees its local shape.
struct TensorSplit {
  int dim = -1;       // of the global shape; -1: every rank holds the whole parameter
  int64_t units = 0;  // pieces that stay together (heads, columns), of each of `parts`
  // Where the degree does not divide `units`.
  enum class Otherwise {
    kRefuse,         // C4
    kReplicate,      // this parameter is whole on every rank, of which each uses a part
    kReplicateUnit,  // all parameters of the unit are whole, and every rank does all of its work
    kUneven          // the last ranks hold fewer
  } otherwise = Otherwise::kRefuse;
};

struct ParamSpec {
  std::string name;            // within the unit: "q_proj"; globally unique as "UNIT.name"
  std::vector<int64_t> shape;  // global shape
  ParamRole role = ParamRole::kMatrix;
  ParamDomain domain = ParamDomain::kDense;
  Init init;
  bool keep_fp32 =
      false;        // value stays fp32 whatever the compute dtype (router, norms that ask for it)
  std::string tie;  // parameters of one non-empty tie group are one logical parameter, owned by its
                    // first unit
  // Names in a Hugging Face checkpoint. One name for a plain or packed parameter. For experts
  // `checkpoint_names` holds the packed name and `expert_parts` the per-expert names with "{e}" in
  // place of the expert number, in row order (gate, up). Empty: not part of a checkpoint.
  std::string checkpoint_name;
  std::vector<std::string> expert_parts;
  // Layout in which experts are written; reading finds out by itself.
  CheckpointLayout checkpoint_layout = CheckpointLayout::kPlain;
  // Where the file keeps another shape of the same elements (Conv3d kernels); empty: `shape`.
  std::vector<int64_t> checkpoint_shape;
  TensorSplit split;
  // How the dimension `split.dim` divides: sizes of its parts (q, k, v; gate, up), each of which is
  // cut alike. Empty: one part.
  std::vector<int64_t> parts;
  // A parameter that is whole, but of which every tensor rank uses its own heads or columns (norms
  // of heads): its gradients on the ranks are shares of the sum.
  bool tensor_shares = false;

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
};

// State of one parameter as its unit sees it. Shared: an op that is part of a graph keeps the
// handle and reads value and sink in backward, when the strategy has gathered the value again and
// set the sink.
struct ParamState final : torch::CustomClassHolder {
  at::Tensor value;  // [local shape], compute dtype (fp32 with keep_fp32); an autograd leaf where
                     // it is trained
  at::Tensor sink;   // [local shape] fp32, zeroed once per accumulation window by the strategy; or
                     // undefined
  int64_t index = -1;  // position in the unit's ParamSpecs
};

// Ops take the handle, never a copy of the weight, and save no copy, cast or transpose of it. A
// fused op adds its weight gradient into sink() where there is one and returns an undefined
// gradient; without a sink it returns the gradient.
class ParamHandle {
 public:
  ParamHandle() = default;
  explicit ParamHandle(c10::intrusive_ptr<ParamState> state) : state_(std::move(state)) {}
  // A handle outside a strategy (tests, ops called on plain tensors).
  static ParamHandle of(at::Tensor value, at::Tensor sink = {}) {
    auto state = c10::make_intrusive<ParamState>();
    state->value = std::move(value);
    state->sink = std::move(sink);
    return ParamHandle(std::move(state));
  }
  bool defined() const { return static_cast<bool>(state_); }
  const at::Tensor& value() const { return state_->value; }
  const at::Tensor& sink() const { return state_->sink; }
  bool trainable() const { return state_->value.requires_grad(); }
  const c10::intrusive_ptr<ParamState>& state() const { return state_; }
  // To and from the saved_data of an autograd function.
  c10::IValue capsule() const { return c10::IValue::make_capsule(state_); }
  static ParamHandle from_capsule(const c10::IValue& value) {
    return ParamHandle(c10::static_intrusive_pointer_cast<ParamState>(value.toCapsule()));
  }

 private:
  c10::intrusive_ptr<ParamState> state_;
};

// The parameters of one unit, in ParamSpec order.
class KEYSEAT_API Params {
 public:
  Params() = default;
  Params(const std::vector<ParamSpec>* specs, std::vector<ParamHandle> handles);
  const ParamHandle& at(const std::string& name) const;  // throws R4 naming what there is
  const ParamHandle& at(size_t index) const { return handles_.at(index); }
  bool has(const std::string& name) const;
  size_t size() const { return handles_.size(); }
  const std::vector<ParamSpec>& specs() const { return *specs_; }

 private:
  const std::vector<ParamSpec>* specs_ = nullptr;
  std::vector<ParamHandle> handles_;
};

}  // namespace keyseat
