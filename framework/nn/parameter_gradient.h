// How a fused op hands over the gradient of a parameter: added into the sink where there is one
// (then autograd gets an undefined gradient), else returned in the parameter's dtype.
#pragma once

#include <ATen/core/Tensor.h>

#include "keyseat/params.h"

namespace keyseat::nn {

// Hands over a finished gradient of the parameter's shape, in any float dtype.
at::Tensor hand_over(const ParamHandle& parameter, const at::Tensor& gradient);

// Hands over left_MA^T right_MB, the gradient of a matrix [A, B]; into an fp32 sink without a
// temporary where the values are fp32 too.
at::Tensor hand_over_product(const ParamHandle& parameter, const at::Tensor& left_MA,
                             const at::Tensor& right_MB);

// For kernels that add into fp32 memory themselves.
class GradientBuffer {
 public:
  explicit GradientBuffer(const ParamHandle& parameter);
  float* data() const { return buffer_.mutable_data_ptr<float>(); }
  const at::Tensor& tensor() const { return buffer_; }
  at::Tensor hand_over() const;  // what the op returns to autograd

 private:
  ParamHandle parameter_;
  bool is_sink_;
  at::Tensor buffer_;  // contiguous fp32, of the parameter's shape: the sink itself, or zeros
};

}  // namespace keyseat::nn
