#include "keyseat/nn/norm.h"

#include <doctest/doctest.h>

#include "nn/op_check.h"

namespace keyseat::nn {
namespace {

check::Op rms(Kernels kernels) {
  return [kernels](const auto& inputs, const auto& parameters) {
    return rms_norm(inputs[0], parameters[0], 1e-6, kernels);
  };
}

check::Op layer(Kernels kernels) {
  return [kernels](const auto& inputs, const auto& parameters) {
    return layer_norm(inputs[0], parameters[0], parameters[1], 1e-6, kernels);
  };
}

const std::vector<std::vector<int64_t>> kShapes = {{5, 64}, {3, 2, 16}, {7, 13},   {1, 1},
                                                   {0, 24}, {4, 0, 8},  {67, 512}, {9, 515}};

}  // namespace

TEST_CASE("rms_norm: fast and naive agree") {
  for (const auto& shape : kShapes) {
    CAPTURE(shape);
    check::check_op({.fast = rms(Kernels::kFast),
                     .naive = rms(Kernels::kNaive),
                     .inputs = {check::random(shape, 1)},
                     .parameters = {check::random({shape.back()}, 2)},
                     .bf16_tolerance = 6e-2});
  }
}

TEST_CASE("layer_norm: fast and naive agree") {
  for (const auto& shape : kShapes) {
    if (shape.back() == 1) continue;  // every value is its own mean: the gradient is rounding noise
    CAPTURE(shape);
    check::check_op(
        {.fast = layer(Kernels::kFast),
         .naive = layer(Kernels::kNaive),
         .inputs = {check::random(shape, 1).add(0.3)},
         .parameters = {check::random({shape.back()}, 2), check::random({shape.back()}, 3)},
         .bf16_tolerance = 6e-2});
  }
}

TEST_CASE("norms: inputs that are views of a wider row") {
  const at::Tensor wide = check::random({6, 3, 40}, 4);
  const at::Tensor weight = check::random({40}, 5);
  for (const auto& [fast, naive] : {std::pair(rms(Kernels::kFast), rms(Kernels::kNaive))}) {
    const auto middle = [](const check::Op& op) -> check::Op {
      return [op](const auto& inputs, const auto& parameters) {
        return op({inputs[0].select(1, 1)}, parameters);
      };
    };
    check::check_op({.fast = middle(fast),
                     .naive = middle(naive),
                     .inputs = {wide},
                     .parameters = {weight},
                     .bf16_tolerance = 6e-2});
  }
}

TEST_CASE("norms: fp64 gradients") {
  for (Kernels kernels : {Kernels::kNaive, Kernels::kFast}) {
    check::check_gradient(rms(kernels), {check::random({3, 5}, 1)}, {check::random({5}, 2)});
    check::check_gradient(layer(kernels), {check::random({3, 5}, 1)},
                          {check::random({5}, 2), check::random({5}, 3)});
  }
}

TEST_CASE("rms_norm casts back before it multiplies the weight") {
  const at::Tensor x = check::random({4, 32}, 7).to(at::kBFloat16);
  const at::Tensor weight = check::random({32}, 8).to(at::kBFloat16);
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor expected =
      wide.mul(wide.square().mean(-1, true).add(1e-6).rsqrt()).to(at::kBFloat16).mul(weight);
  const at::Tensor actual = rms_norm(x, ParamHandle::of(weight), 1e-6, Kernels::kFast);
  // One unit of the last place where the statistics round differently.
  check::check_close(actual, expected, 8e-3);
}

}  // namespace keyseat::nn
