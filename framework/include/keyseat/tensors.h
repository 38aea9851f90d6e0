// Named tensors: what units read and write.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "keyseat/export.h"

namespace keyseat {

// Symbols of dimensions; sizes become known with the batch.
//   T row tokens, P vision patches, V visual tokens (patches / merge^2), N images and video frame
//   groups, S samples of the row, R rows of which logits are wanted. A constant has a size of its
//   own.
enum class DimSymbol { kT, kP, kV, kN, kS, kR, kConstant };

struct Dim {
  DimSymbol symbol = DimSymbol::kConstant;
  int64_t size = 0;  // constants only
  Dim(DimSymbol s) : symbol(s) {}
  Dim(int64_t constant) : size(constant) {}
};

// Axes of the process mesh (keyseat/mesh.h).
enum class Axis {
  kPipeline,
  kReplicate,
  kShard,
  kContext,
  kTensor,
  kExpertData,
  kExpert,
  kExpertTensor
};

// Which rows of a packed row a rank of a (context, tensor) group holds: along the dimension T, P, V
// or N of a tensor. Over data and pipeline ranks nothing is said: rows and units are their own.
// Where the degrees of the axes are 1, all of these are the whole.
//
//   kWhole        all of them, equal on every rank of the group
//   kRows         T: this rank's share over context (zig-zag) and, with sequence parallel, tensor;
//                 V: the visual tokens that lie in these rows
//   kContextRows  T: the share of the context rank, equal over tensor
//   kImages       P, V, N: of the images that the context rank encodes, equal over tensor
//
// A tensor without such a dimension, as "router.stats.3" or "loss.ce", is kRows where every rank
// has the sum over its own share, to be added up; else kWhole.
enum class Layout { kWhole, kRows, kContextRows, kImages };

// Description of a named tensor as a unit reads or writes it.
struct TensorSpec {
  std::string name;  // "hidden", "vision.tap.0", "loss.ce"
  std::vector<Dim> dims;
  std::optional<at::ScalarType> dtype;  // none: the run's compute dtype
  bool differentiable = true;
  Layout layout = Layout::kWhole;
  // loss.* only: what the global sum is divided by: "supervised", "tokens", "images" or "one".
  std::string normaliser;
};

// A small ordered map from name to tensor. Lookups are linear: a unit handles a handful of names.
class KEYSEAT_API Tensors {
 public:
  Tensors() = default;
  Tensors(std::initializer_list<std::pair<std::string, at::Tensor>> items);
  const at::Tensor& at(const std::string& name) const;  // throws R4 naming what there is
  at::Tensor get(const std::string& name) const;        // undefined where absent
  bool has(const std::string& name) const;
  void set(const std::string& name, at::Tensor tensor);  // replaces
  void erase(const std::string& name);
  size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<std::pair<std::string, at::Tensor>> items_;
};

}  // namespace keyseat
