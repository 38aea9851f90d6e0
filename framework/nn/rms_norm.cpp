// RMSNorm.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/norm.h"
#include "nn/kernels/rms_norm.h"
#include "nn/naive.h"
#include "nn/parameter_gradient.h"
#include "nn/simd.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in,
                            const at::Tensor& weight, const ParamHandle& handle, double eps) {
    const at::Tensor x = x_in.contiguous(), w = as_fp32(weight);
    const int64_t rows = rows_of(x), width = x.size(-1);
    at::Tensor y = at::empty_like(x);
    at::Tensor rstd = at::empty({rows}, x.options().dtype(at::kFloat));
    with_element(x, [&]<typename T>(T) {
      at::parallel_for(0, rows, row_grain(width), [&](int64_t begin, int64_t end) {
        kernels::run(kernels::RmsNormForward<T>{.x = read<T>(x) + begin * width,
                                                .w = read<float>(w),
                                                .y = written<T>(y) + begin * width,
                                                .rstd = written<float>(rstd) + begin,
                                                .rows = end - begin,
                                                .width = width,
                                                .eps = static_cast<float>(eps)});
      });
    });
    context->save_for_backward({x, rstd});
    context->saved_data["weight"] = handle.capsule();
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &rstd = saved[1];
    const at::Tensor dy = gradients[0].contiguous();
    const ParamHandle weight = ParamHandle::from_capsule(context->saved_data["weight"]);
    const at::Tensor w = as_fp32(weight.value());
    std::optional<GradientBuffer> dw;
    if (context->needs_input_grad(1)) dw.emplace(weight);
    at::Tensor dx = context->needs_input_grad(0) ? at::empty_like(x) : at::Tensor();
    const int64_t width = x.size(-1);
    with_element(x, [&]<typename T>(T) {
      sum_over_rows(rows_of(x), width, {dw ? dw->data() : nullptr},
                    [&](int64_t begin, int64_t end, const std::vector<float*>& sums) {
                      kernels::run(kernels::RmsNormBackward<T>{
                          .dy = read<T>(dy) + begin * width,
                          .x = read<T>(x) + begin * width,
                          .w = read<float>(w),
                          .rstd = read<float>(rstd) + begin,
                          .dx = dx.defined() ? written<T>(dx) + begin * width : nullptr,
                          .dw = sums[0],
                          .rows = end - begin,
                          .width = width});
                    });
    });
    return {dx, dw ? dw->hand_over() : at::Tensor(), {}, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x_TH, const ParamHandle& weight_H, double eps,
                    Kernels kernels) {
  if (kernels == Kernels::kFast && simd_takes(x_TH))
    return RmsNormFunction::apply(x_TH, weight_H.value(), weight_H, eps);
  return naive::rms_norm(x_TH, weight_H, eps);
}

}  // namespace keyseat::nn
