// Both forms of GELU. The erf form is LibTorch's own, which is vectorised already.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/activation.h"
#include "nn/kernels/gelu.h"
#include "nn/naive.h"
#include "nn/simd.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 16384;

struct GeluTanhFunction : torch::autograd::Function<GeluTanhFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in) {
    const at::Tensor x = x_in.contiguous();
    at::Tensor y = at::empty_like(x);
    with_element(x, [&]<typename T>(T) {
      at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
        kernels::run(kernels::GeluTanhForward<T>{
            .x = read<T>(x) + begin, .y = written<T>(y) + begin, .count = end - begin});
      });
    });
    context->save_for_backward({x});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor dx = at::empty_like(x);
    with_element(x, [&]<typename T>(T) {
      at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
        kernels::run(kernels::GeluTanhBackward<T>{.dy = read<T>(dy) + begin,
                                                  .x = read<T>(x) + begin,
                                                  .dx = written<T>(dx) + begin,
                                                  .count = end - begin});
      });
    });
    return {dx};
  }
};

}  // namespace

at::Tensor gelu_tanh(const at::Tensor& x, Kernels kernels) {
  if (kernels == Kernels::kNaive) return naive::gelu_tanh(x);
  return simd_takes(x) ? GeluTanhFunction::apply(x) : at::gelu(x, "tanh");
}

at::Tensor gelu_erf(const at::Tensor& x, Kernels kernels) {
  return kernels == Kernels::kNaive ? naive::gelu_erf(x) : at::gelu(x, "none");
}

}  // namespace keyseat::nn
