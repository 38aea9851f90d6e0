// Linear layers; the weight gradient is one GEMM straight into the sink.
#include "keyseat/nn/linear.h"

#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/parameter_gradient.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  // Values are passed beside their handles so that autograd sees them as inputs.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const ParamHandle& weight_handle,
                            const ParamHandle& bias_handle) {
    // A frozen weight needs no input kept.
    context->save_for_backward({weight.requires_grad() ? x : at::Tensor()});
    context->saved_data["weight"] = weight_handle.capsule();
    if (bias) context->saved_data["bias"] = bias_handle.capsule();
    return at::linear(x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const ParamHandle weight = ParamHandle::from_capsule(context->saved_data["weight"]);
    const at::Tensor& dy = gradients[0];
    const int64_t out = weight.value().size(0), in = weight.value().size(1);
    at::Tensor dy_MO = dy.reshape({-1, out});
    at::Tensor dx, dweight, dbias;
    if (context->needs_input_grad(1)) {
      at::Tensor x_MI = context->get_saved_variables()[0].reshape({-1, in});
      dweight = hand_over_product(weight, dy_MO, x_MI);
    }
    if (context->saved_data.count("bias") && context->needs_input_grad(2)) {
      const ParamHandle bias = ParamHandle::from_capsule(context->saved_data["bias"]);
      dbias = hand_over(bias, dy_MO.sum(0, /*keepdim=*/false, at::kFloat));
    }
    if (context->needs_input_grad(0)) dx = dy.matmul(weight.value());
    return {dx, dweight, dbias, {}, {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x_TI, const ParamHandle& weight_OI, const ParamHandle& bias_O) {
  const std::optional<at::Tensor> bias =
      bias_O.defined() ? std::make_optional(bias_O.value()) : std::nullopt;
  return LinearFunction::apply(x_TI, weight_OI.value(), bias, weight_OI, bias_O);
}

}  // namespace keyseat::nn
