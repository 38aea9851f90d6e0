// Application of rotary position embeddings.
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/rope.h"
#include "nn/kernels/rope.h"
#include "nn/naive.h"
#include "nn/simd.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x may be a view into wider rows (fused q, k, v).
at::Tensor turn(const at::Tensor& x_in, const at::Tensor& cos, const at::Tensor& sin,
                float direction) {
  const at::Tensor x_Tnd = x_in.stride(2) == 1 ? x_in : x_in.contiguous();
  const int64_t rows = x_Tnd.size(0), heads = x_Tnd.size(1), head_dim = x_Tnd.size(2);
  const int64_t half = cos.size(1);
  at::Tensor y_Tnd = at::empty({rows, heads, head_dim}, x_Tnd.options());
  with_element(x_Tnd, [&]<typename T>(T) {
    at::parallel_for(0, rows, row_grain(heads * head_dim), [&](int64_t begin, int64_t end) {
      kernels::run(kernels::Rope<T>{.x = read<T>(x_Tnd) + begin * x_Tnd.stride(0),
                                    .row_stride = x_Tnd.stride(0),
                                    .head_stride = x_Tnd.stride(1),
                                    .cos = read<float>(cos) + begin * half,
                                    .sin = read<float>(sin) + begin * half,
                                    .y = written<T>(y_Tnd) + begin * heads * head_dim,
                                    .rows = end - begin,
                                    .heads = heads,
                                    .head_dim = head_dim,
                                    .half = half,
                                    .direction = direction});
    });
  });
  return y_Tnd;
}

struct RopeFunction : torch::autograd::Function<RopeFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_Tnd,
                            const at::Tensor& cos, const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return turn(x_Tnd, cos, sin, 1.0f);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {turn(gradients[0], saved[0], saved[1], -1.0f), {}, {}};
  }
};

}  // namespace

at::Tensor apply_rope(const at::Tensor& x_Tnd, const RopeTables& tables, Kernels kernels) {
  const RopeTables here{tables.cos.to(x_Tnd.device()), tables.sin.to(x_Tnd.device())};
  if (kernels == Kernels::kFast && simd_takes(x_Tnd))
    return RopeFunction::apply(x_Tnd, as_fp32(here.cos), as_fp32(here.sin));
  return naive::apply_rope(x_Tnd, here);
}

}  // namespace keyseat::nn
