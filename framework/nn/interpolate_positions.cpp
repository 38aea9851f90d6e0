// Interpolation of the position table; the gradient is scattered straight into the sink.
#include <torch/csrc/autograd/custom_function.h>

#include "nn/naive.h"
#include "nn/parameter_gradient.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct InterpolateFunction : torch::autograd::Function<InterpolateFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table,
                            const at::Tensor& index_4P, const at::Tensor& weight_4P,
                            const ParamHandle& handle) {
    if (table.requires_grad()) context->save_for_backward({index_4P, weight_4P});
    context->saved_data["table"] = handle.capsule();
    return naive::interpolate_positions(handle, {index_4P, weight_4P});
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (!context->needs_input_grad(0)) return {{}, {}, {}, {}};
    const auto saved = context->get_saved_variables();
    const at::Tensor dy_PC = gradients[0].to(at::kFloat);
    const GradientBuffer buffer(ParamHandle::from_capsule(context->saved_data["table"]));
    for (int64_t tap = 0; tap < 4 && dy_PC.size(0) > 0; ++tap) {
      buffer.tensor().index_add_(0, saved[0].select(0, tap),
                                 dy_PC.mul(saved[1].select(0, tap).unsqueeze(-1)));
    }
    return {buffer.hand_over(), {}, {}, {}};
  }
};

}  // namespace

at::Tensor interpolate_positions(const ParamHandle& table_GGC, const PositionTaps& taps,
                                 Kernels kernels) {
  const at::Device device = table_GGC.value().device();
  const PositionTaps here{taps.index_4P.to(device), taps.weight_4P.to(device)};
  if (kernels == Kernels::kNaive || table_GGC.value().scalar_type() == at::kDouble)
    return naive::interpolate_positions(table_GGC, here);
  return InterpolateFunction::apply(table_GGC.value(), here.index_4P, here.weight_4P, table_GGC);
}

}  // namespace keyseat::nn
