// LayerNorm.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/norm.h"
#include "nn/kernels/layer_norm.h"
#include "nn/naive.h"
#include "nn/parameter_gradient.h"
#include "nn/simd.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const ParamHandle& weight_handle, const ParamHandle& bias_handle,
                            double eps) {
    const at::Tensor x = x_in.contiguous(), w = as_fp32(weight), b = as_fp32(bias);
    const int64_t rows = rows_of(x), width = x.size(-1);
    at::Tensor y = at::empty_like(x);
    at::Tensor mean = at::empty({rows}, x.options().dtype(at::kFloat)), rstd = at::empty_like(mean);
    with_element(x, [&]<typename T>(T) {
      at::parallel_for(0, rows, row_grain(width), [&](int64_t begin, int64_t end) {
        kernels::run(kernels::LayerNormForward<T>{.x = read<T>(x) + begin * width,
                                                  .w = read<float>(w),
                                                  .b = read<float>(b),
                                                  .y = written<T>(y) + begin * width,
                                                  .mean = written<float>(mean) + begin,
                                                  .rstd = written<float>(rstd) + begin,
                                                  .rows = end - begin,
                                                  .width = width,
                                                  .eps = static_cast<float>(eps)});
      });
    });
    context->save_for_backward({x, mean, rstd});
    context->saved_data["weight"] = weight_handle.capsule();
    context->saved_data["bias"] = bias_handle.capsule();
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &mean = saved[1], &rstd = saved[2];
    const at::Tensor dy = gradients[0].contiguous();
    const ParamHandle weight = ParamHandle::from_capsule(context->saved_data["weight"]);
    const at::Tensor w = as_fp32(weight.value());
    std::optional<GradientBuffer> dw, db;
    if (context->needs_input_grad(1)) dw.emplace(weight);
    if (context->needs_input_grad(2))
      db.emplace(ParamHandle::from_capsule(context->saved_data["bias"]));
    at::Tensor dx = context->needs_input_grad(0) ? at::empty_like(x) : at::Tensor();
    const int64_t width = x.size(-1);
    with_element(x, [&]<typename T>(T) {
      sum_over_rows(rows_of(x), width, {dw ? dw->data() : nullptr, db ? db->data() : nullptr},
                    [&](int64_t begin, int64_t end, const std::vector<float*>& sums) {
                      kernels::run(kernels::LayerNormBackward<T>{
                          .dy = read<T>(dy) + begin * width,
                          .x = read<T>(x) + begin * width,
                          .w = read<float>(w),
                          .mean = read<float>(mean) + begin,
                          .rstd = read<float>(rstd) + begin,
                          .dx = dx.defined() ? written<T>(dx) + begin * width : nullptr,
                          .dw = sums[0],
                          .db = sums[1],
                          .rows = end - begin,
                          .width = width});
                    });
    });
    return {dx, dw ? dw->hand_over() : at::Tensor(), db ? db->hand_over() : at::Tensor(), {}, {},
            {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x_TH, const ParamHandle& weight_H,
                      const ParamHandle& bias_H, double eps, Kernels kernels) {
  const at::Tensor &weight = weight_H.value(), &bias = bias_H.value();
  if (kernels == Kernels::kFast && simd_takes(x_TH))
    return LayerNormFunction::apply(x_TH, weight, bias, weight_H, bias_H, eps);
  if (kernels == Kernels::kFast && x_TH.is_cuda())
    return at::layer_norm(x_TH, {x_TH.size(-1)}, weight, bias, eps);
  return naive::layer_norm(x_TH, weight_H, bias_H, eps);
}

}  // namespace keyseat::nn
