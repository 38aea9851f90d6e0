// Test support: everything an op must keep, checked by one call per case.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>

#include <functional>
#include <vector>

#include "keyseat/params.h"

namespace keyseat::nn::check {

// An op over differentiable inputs and parameters; what else it takes is captured.
using Op = std::function<at::Tensor(const std::vector<at::Tensor>& inputs,
                                    const std::vector<ParamHandle>& parameters)>;

struct OpCase {
  Op fast, naive;
  std::vector<at::Tensor> inputs, parameters;  // fp32 values
  double tolerance = 2e-5;                     // absolute and relative, fp32
  double bf16_tolerance = 3e-2;                // 0: the op takes no bf16
  std::vector<bool> keep_fp32 = {};            // inputs that stay fp32 in the bf16 run
};

// fp32: value and gradients of the fast op against the naive one; without sinks, into sinks that
// hold something already, with frozen parameters, with frozen inputs, without gradient mode.
// bf16: the same loosely, into fp32 sinks. Meta: shapes of value and gradients.
void check_op(const OpCase& op_case);

// Gradients of op in fp64 against central differences. Small tensors only.
void check_gradient(const Op& op, const std::vector<at::Tensor>& inputs,
                    const std::vector<at::Tensor>& parameters);

void check_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance);

// Standard normal fp32 values that depend on the seed only.
inline at::Tensor random(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

}  // namespace keyseat::nn::check
