// The ranks that the ops of keyseat/nn/tensor_parallel.h work with, and their collectives.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "keyseat/context.h"

namespace keyseat {
class CommGroup;
}

namespace keyseat::nn {

// The ranks that differ from this one along `axes` only, in the mesh's order; kept for backward. Of
// one rank without a mesh (an op called on its own). Collectives of one rank are the identity; of
// meta tensors they give shapes, and no communicator is needed.
class RankGroup final : public torch::CustomClassHolder {
 public:
  RankGroup(const StepContext& context, const std::vector<Axis>& axes);
  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }
  int64_t rank() const { return rank_; }  // within the group
  CommGroup& comm() const;

  // Parts of dimension 0: counts[i] rows of rank i, or equal parts.
  at::Tensor all_gather(const at::Tensor& part, const std::vector<int64_t>& counts) const;
  at::Tensor all_gather(const at::Tensor& part) const;
  at::Tensor reduce_scatter(const at::Tensor& whole) const;
  at::Tensor all_reduce(const at::Tensor& part) const;  // a new tensor

  // To and from the saved_data of an autograd function.
  static c10::IValue capsule(const c10::intrusive_ptr<RankGroup>& group) {
    return c10::IValue::make_capsule(group);
  }
  static c10::intrusive_ptr<RankGroup> from_capsule(const c10::IValue& value) {
    return c10::static_intrusive_pointer_cast<RankGroup>(value.toCapsule());
  }

 private:
  Comm* comm_ = nullptr;
  std::vector<int64_t> ranks_;
  int64_t rank_ = 0;
};

using RankGroupPointer = c10::intrusive_ptr<RankGroup>;

inline RankGroupPointer group_over(const StepContext& context, const std::vector<Axis>& axes) {
  return c10::make_intrusive<RankGroup>(context, axes);
}

}  // namespace keyseat::nn
