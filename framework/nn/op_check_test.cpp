// Implementation of op_check.h (part of the test executable).
#include "nn/op_check.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

namespace keyseat::nn::check {
namespace {

constexpr double kSinkStart = 0.5;

struct Options {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  bool sinks = false, train_inputs = true, train_parameters = true;
  std::vector<bool> keep_fp32 = {};
};

// Value and gradients; undefined where an input is frozen.
struct Outcome {
  at::Tensor value;
  std::vector<at::Tensor> input_gradients, parameter_gradients;
};

at::Tensor leaf(const at::Tensor& value, const Options& options, bool trains, bool keep_fp32) {
  const at::ScalarType dtype = keep_fp32 ? at::kFloat : options.dtype;
  return value.detach().to(options.device, dtype, false, true).requires_grad_(trains);
}

Outcome run(const Op& op, const std::vector<at::Tensor>& inputs,
            const std::vector<at::Tensor>& parameters, const Options& options) {
  std::vector<at::Tensor> leaves, handles_leaves, trained;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool keep_fp32 = i < options.keep_fp32.size() && options.keep_fp32[i];
    leaves.push_back(leaf(inputs[i], options, options.train_inputs, keep_fp32));
  }
  std::vector<ParamHandle> handles;
  for (const at::Tensor& parameter : parameters) {
    at::Tensor value = leaf(parameter, options, options.train_parameters, false);
    at::Tensor sink;
    if (options.sinks)
      sink = at::full(value.sizes(), kSinkStart, value.options().dtype(at::kFloat));
    handles.push_back(ParamHandle::of(value, sink));
    handles_leaves.push_back(value);
  }
  Outcome outcome{op(leaves, handles), {}, {}};
  if (options.train_inputs) trained = leaves;
  if (options.train_parameters)
    trained.insert(trained.end(), handles_leaves.begin(), handles_leaves.end());
  std::vector<at::Tensor> gradients;
  if (!trained.empty()) {
    at::Tensor dy = random(outcome.value.sizes(), 99).to(outcome.value.options());
    gradients = torch::autograd::grad({outcome.value}, trained, {dy}, {}, false, true);
  } else {
    CHECK_FALSE(outcome.value.requires_grad());
  }
  size_t next = 0;
  for (size_t i = 0; i < leaves.size(); ++i)
    outcome.input_gradients.push_back(options.train_inputs ? gradients[next++] : at::Tensor());
  for (const ParamHandle& handle : handles) {
    at::Tensor gradient = options.train_parameters ? gradients[next++] : at::Tensor();
    if (options.sinks) {
      if (!options.train_parameters) CHECK(handle.sink().eq(kSinkStart).all().item<bool>());
      if (options.train_parameters && !gradient.defined()) gradient = handle.sink().sub(kSinkStart);
    }
    outcome.parameter_gradients.push_back(gradient);
  }
  outcome.value = outcome.value.detach();
  return outcome;
}

void compare(const Outcome& actual, const Outcome& expected, double tolerance) {
  check_close(actual.value, expected.value, tolerance);
  const auto compare_lists = [&](const auto& a, const auto& e) {
    for (size_t i = 0; i < a.size(); ++i) {
      CAPTURE(i);
      if (a[i].defined()) check_close(a[i], e[i], tolerance);
    }
  };
  compare_lists(actual.input_gradients, expected.input_gradients);
  compare_lists(actual.parameter_gradients, expected.parameter_gradients);
}

void all_defined(const Outcome& outcome) {
  for (const at::Tensor& gradient : outcome.input_gradients) CHECK(gradient.defined());
  for (const at::Tensor& gradient : outcome.parameter_gradients) CHECK(gradient.defined());
}

void check_meta(const OpCase& op_case, const Outcome& expected) {
  const Outcome meta = run(op_case.fast, op_case.inputs, op_case.parameters, {.device = at::kMeta});
  CHECK(meta.value.is_meta());
  CHECK((meta.value.sizes() == expected.value.sizes()));
  for (size_t i = 0; i < meta.input_gradients.size(); ++i)
    CHECK((meta.input_gradients[i].sizes() == expected.input_gradients[i].sizes()));
  for (size_t i = 0; i < meta.parameter_gradients.size(); ++i)
    CHECK((meta.parameter_gradients[i].sizes() == expected.parameter_gradients[i].sizes()));
}

}  // namespace

void check_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  REQUIRE(actual.defined());
  REQUIRE(expected.defined());
  REQUIRE((actual.sizes() == expected.sizes()));
  if (actual.numel() == 0) return;
  const at::Tensor a = actual.to(at::kCPU, at::kDouble), e = expected.to(at::kCPU, at::kDouble);
  const double scale = std::max(1.0, e.abs().max().item<double>());
  const double difference = a.sub(e).abs().max().item<double>();
  CHECK(difference <= tolerance * scale);
}

void check_op(const OpCase& op_case) {
  const auto& [fast, naive, inputs, parameters, tolerance, bf16_tolerance, keep_fp32] = op_case;
  const Outcome expected = run(naive, inputs, parameters, {});
  all_defined(expected);
  for (bool sinks : {false, true}) {
    CAPTURE(sinks);
    const Outcome outcome = run(fast, inputs, parameters, {.sinks = sinks});
    all_defined(outcome);
    compare(outcome, expected, tolerance);
    compare(run(fast, inputs, parameters, {.sinks = sinks, .train_inputs = false}), expected,
            tolerance);
    compare(run(fast, inputs, parameters, {.sinks = sinks, .train_parameters = false}), expected,
            tolerance);
  }
  compare(run(fast, inputs, parameters, {.train_inputs = false, .train_parameters = false}),
          expected, tolerance);
  if (bf16_tolerance > 0) {
    INFO("bf16");
    const Outcome outcome = run(fast, inputs, parameters,
                                {.dtype = at::kBFloat16, .sinks = true, .keep_fp32 = keep_fp32});
    CHECK((outcome.value.scalar_type() == at::kBFloat16));
    compare(outcome, expected, bf16_tolerance);
  }
  check_meta(op_case, expected);
}

void check_gradient(const Op& op, const std::vector<at::Tensor>& inputs,
                    const std::vector<at::Tensor>& parameters) {
  const Options options{.dtype = at::kDouble};
  std::vector<at::Tensor> inputs64, parameters64;
  for (const at::Tensor& input : inputs) inputs64.push_back(input.to(at::kDouble));
  for (const at::Tensor& parameter : parameters) parameters64.push_back(parameter.to(at::kDouble));
  const Outcome analytic = run(op, inputs64, parameters64, options);
  const auto loss = [&] {
    const Outcome outcome =
        run(op, inputs64, parameters64,
            {.dtype = at::kDouble, .train_inputs = false, .train_parameters = false});
    return outcome.value.mul(random(outcome.value.sizes(), 99)).sum().item<double>();
  };
  constexpr double kStep = 1e-5;
  const auto check_tensor = [&](at::Tensor& tensor, const at::Tensor& gradient) {
    at::Tensor numeric = gradient.clone(at::MemoryFormat::Contiguous);
    double* value = tensor.mutable_data_ptr<double>();
    double* slope = numeric.mutable_data_ptr<double>();
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      const double start = value[i];
      value[i] = start + kStep;
      const double above = loss();
      value[i] = start - kStep;
      const double below = loss();
      value[i] = start;
      slope[i] = (above - below) / (2 * kStep);
    }
    check_close(gradient, numeric, 1e-7);
  };
  for (size_t i = 0; i < inputs64.size(); ++i)
    check_tensor(inputs64[i], analytic.input_gradients[i]);
  for (size_t i = 0; i < parameters64.size(); ++i)
    check_tensor(parameters64[i], analytic.parameter_gradients[i]);
}

}  // namespace keyseat::nn::check
