#include "keyseat/nn/activation.h"

#include <doctest/doctest.h>

#include "nn/op_check.h"

namespace keyseat::nn {
namespace {

check::Op plain(at::Tensor (*function)(const at::Tensor&, Kernels), Kernels kernels) {
  return [=](const auto& inputs, const auto&) { return function(inputs[0], kernels); };
}

check::Op weighted(Kernels kernels) {
  return [kernels](const auto& inputs, const auto&) {
    return weighted_swiglu(inputs[0], inputs[1], kernels);
  };
}

const std::vector<std::vector<int64_t>> kShapes = {{5, 64}, {3, 14}, {1, 2}, {0, 32}, {65, 512}};

}  // namespace

TEST_CASE("swiglu, gelu_tanh, gelu_erf: fast and naive agree") {
  for (auto function : {&swiglu, &gelu_tanh, &gelu_erf}) {
    for (const auto& shape : kShapes) {
      CAPTURE(shape);
      check::check_op({.fast = plain(function, Kernels::kFast),
                       .naive = plain(function, Kernels::kNaive),
                       .inputs = {check::random(shape, 1).mul(3)},
                       .parameters = {}});
    }
  }
}

TEST_CASE("weighted_swiglu: fast and naive agree") {
  for (const auto& shape : kShapes) {
    CAPTURE(shape);
    check::check_op({.fast = weighted(Kernels::kFast),
                     .naive = weighted(Kernels::kNaive),
                     .inputs = {check::random(shape, 1).mul(3), check::random({shape[0]}, 2)},
                     .parameters = {},
                     .keep_fp32 = {false, true}});
  }
}

TEST_CASE("activations: extreme values stay finite") {
  const at::Tensor x = check::random({4, 64}, 1).mul(200);
  for (auto function : {&swiglu, &gelu_tanh, &gelu_erf}) {
    const at::Tensor leaf = x.clone().requires_grad_();
    at::Tensor y = function(leaf, Kernels::kFast);
    y.sum().backward();
    CHECK(y.isfinite().all().item<bool>());
    CHECK(leaf.grad().isfinite().all().item<bool>());
    check::check_close(y, function(x, Kernels::kNaive), 1e-5);
  }
}

TEST_CASE("activations: fp64 gradients") {
  for (Kernels kernels : {Kernels::kNaive, Kernels::kFast}) {
    for (auto function : {&swiglu, &gelu_tanh, &gelu_erf})
      check::check_gradient(plain(function, kernels), {check::random({3, 6}, 1)}, {});
    check::check_gradient(weighted(kernels), {check::random({3, 6}, 1), check::random({3}, 2)}, {});
  }
}

}  // namespace keyseat::nn
