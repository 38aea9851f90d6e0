// SwiGLU, with and without a weight per row.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/activation.h"
#include "nn/kernels/swiglu.h"
#include "nn/naive.h"
#include "nn/simd.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up_in,
                            const std::optional<at::Tensor>& row_weight_in) {
    const at::Tensor gate_up = gate_up_in.contiguous();
    const at::Tensor row_weight = row_weight_in ? as_fp32(*row_weight_in) : at::Tensor();
    const int64_t rows = rows_of(gate_up), width = gate_up.size(-1) / 2;
    std::vector<int64_t> shape = gate_up.sizes().vec();
    shape.back() = width;
    at::Tensor y = at::empty(shape, gate_up.options());
    with_element(gate_up, [&]<typename T>(T) {
      at::parallel_for(0, rows, row_grain(width), [&](int64_t begin, int64_t end) {
        kernels::run(kernels::SwigluForward<T>{
            .gate_up = read<T>(gate_up) + begin * 2 * width,
            .row_weight = row_weight.defined() ? read<float>(row_weight) + begin : nullptr,
            .y = written<T>(y) + begin * width,
            .rows = end - begin,
            .width = width});
      });
    });
    context->save_for_backward({gate_up, row_weight});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &gate_up = saved[0], &row_weight = saved[1];
    const at::Tensor dy = gradients[0].contiguous();
    const int64_t rows = rows_of(gate_up), width = gate_up.size(-1) / 2;
    at::Tensor dgate_up = at::empty_like(gate_up);
    at::Tensor drow_weight = row_weight.defined() ? at::empty_like(row_weight) : at::Tensor();
    with_element(gate_up, [&]<typename T>(T) {
      at::parallel_for(0, rows, row_grain(width), [&](int64_t begin, int64_t end) {
        kernels::run(kernels::SwigluBackward<T>{
            .dy = read<T>(dy) + begin * width,
            .gate_up = read<T>(gate_up) + begin * 2 * width,
            .row_weight = row_weight.defined() ? read<float>(row_weight) + begin : nullptr,
            .dgate_up = written<T>(dgate_up) + begin * 2 * width,
            .drow_weight = drow_weight.defined() ? written<float>(drow_weight) + begin : nullptr,
            .rows = end - begin,
            .width = width});
      });
    });
    return {dgate_up, drow_weight};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up_M2I, Kernels kernels) {
  if (kernels == Kernels::kFast && simd_takes(gate_up_M2I))
    return SwigluFunction::apply(gate_up_M2I, std::nullopt);
  return naive::swiglu(gate_up_M2I);
}

at::Tensor weighted_swiglu(const at::Tensor& gate_up_M2I, const at::Tensor& row_weight_M,
                           Kernels kernels) {
  if (kernels == Kernels::kFast && simd_takes(gate_up_M2I) &&
      row_weight_M.scalar_type() == at::kFloat)
    return SwigluFunction::apply(gate_up_M2I, std::make_optional(row_weight_M));
  return naive::weighted_swiglu(gate_up_M2I, row_weight_M);
}

}  // namespace keyseat::nn
