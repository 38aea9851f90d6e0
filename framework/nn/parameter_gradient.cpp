#include "nn/parameter_gradient.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

namespace keyseat::nn {

at::Tensor hand_over(const ParamHandle& parameter, const at::Tensor& gradient) {
  if (parameter.sink().defined()) {
    parameter.sink().add_(gradient);
    return {};
  }
  return gradient.to(parameter.value().scalar_type());
}

at::Tensor hand_over_product(const ParamHandle& parameter, const at::Tensor& left_MA,
                             const at::Tensor& right_MB) {
  const at::Tensor& sink = parameter.sink();
  at::Tensor left_AM = left_MA.t();
  if (!sink.defined()) return at::mm(left_AM, right_MB).to(parameter.value().scalar_type());
  if (sink.scalar_type() == left_MA.scalar_type()) {
    sink.addmm_(left_AM, right_MB);
  } else if (left_MA.is_cuda()) {
    sink.add_(
        at::mm(left_AM, right_MB, sink.scalar_type()));  // the product leaves the GEMM in fp32
  } else {
    sink.add_(at::mm(left_AM, right_MB));
  }
  return {};
}

GradientBuffer::GradientBuffer(const ParamHandle& parameter)
    : parameter_(parameter),
      is_sink_(parameter.sink().defined() && parameter.sink().is_contiguous() &&
               parameter.sink().scalar_type() == at::kFloat),
      buffer_(is_sink_ ? parameter.sink()
                       : at::zeros(parameter.value().sizes(),
                                   parameter.value().options().dtype(at::kFloat))) {}

at::Tensor GradientBuffer::hand_over() const {
  return is_sink_ ? at::Tensor() : nn::hand_over(parameter_, buffer_);
}

}  // namespace keyseat::nn
