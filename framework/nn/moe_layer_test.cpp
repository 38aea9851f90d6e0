#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include "keyseat/nn/moe.h"
#include "nn/op_check.h"
#include "nn/testing.h"

namespace keyseat::nn {
namespace {

constexpr int64_t kHidden = 6, kExperts = 5, kWidth = 4, kTopK = 2;

std::vector<at::Tensor> weights(uint64_t seed) {
  return {check::random({kExperts, kHidden}, seed),
          check::random({kExperts, 2 * kWidth, kHidden}, seed + 1),
          check::random({kExperts, kHidden, kWidth}, seed + 2)};
}

// y and the statistics, side by side in one vector: both carry gradients.
at::Tensor flat(const at::Tensor& y_TH, const at::Tensor& probability_E, const at::Tensor& z_1) {
  return at::cat({y_TH.reshape({-1}), probability_E, z_1});
}

// Contexts live until the backward of their call is over: as long as the op.
check::Op layer(int64_t padding, Kernels kernels) {
  const auto contexts = std::make_shared<std::vector<std::unique_ptr<check::CallContext>>>();
  return [=](const auto& inputs, const auto& p) {
    contexts->push_back(
        std::make_unique<check::CallContext>(inputs[0].size(0) - padding, padding, kernels, p));
    const MoeOutput output =
        moe_layer(inputs[0], p[0], p[1], p[2], {.top_k = kTopK}, **contexts->back());
    return flat(output.y_TH, output.routing.stats_2E.select(0, 0), output.routing.z_1);
  };
}

// Token by token, expert by expert, as the model is defined.
check::Op loop(int64_t padding) {
  return [=](const auto& inputs, const auto& p) {
    const at::Tensor& x_TH = inputs[0];
    const int64_t rows = x_TH.size(0), real = rows - padding;
    const at::Tensor logits_TE = at::linear(x_TH, p[0].value()).narrow(0, 0, real);
    const at::Tensor probability_TE = logits_TE.softmax(1);
    std::vector<at::Tensor> y;
    for (int64_t token = 0; token < rows; ++token) {
      at::Tensor sum_H = at::zeros({kHidden}, x_TH.options());
      if (token < real) {
        const auto [best, index] = probability_TE.select(0, token).topk(kTopK);
        const at::Tensor weight = best.div(best.sum());
        for (int64_t k = 0; k < kTopK; ++k) {
          const int64_t expert = index.select(0, k).template item<int64_t>();
          const at::Tensor hidden = p[1].value().select(0, expert).matmul(x_TH.select(0, token));
          const at::Tensor act =
              at::silu(hidden.narrow(0, 0, kWidth)).mul(hidden.narrow(0, kWidth, kWidth));
          sum_H = sum_H.add(p[2].value().select(0, expert).matmul(act).mul(weight.select(0, k)));
        }
      }
      y.push_back(sum_H);
    }
    const at::Tensor y_TH = rows > 0 ? at::stack(y) : at::zeros({0, kHidden}, x_TH.options());
    return flat(y_TH.add(x_TH.mul(0)), probability_TE.sum(0),
                logits_TE.logsumexp(1).square().sum().reshape({1}))
        .add(p[1].value().sum().mul(0))
        .add(p[2].value().sum().mul(0));
  };
}

}  // namespace

TEST_CASE("moe layer: against a loop over tokens and experts") {
  for (const auto& [tokens, padding] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {1, 0}, {17, 0}, {9, 3}}) {
    for (const Kernels kernels : {Kernels::kFast, Kernels::kNaive}) {
      CAPTURE(tokens);
      CAPTURE(padding);
      check::OpCase op_case{.fast = layer(padding, kernels),
                            .naive = loop(padding),
                            .inputs = {check::random({tokens, kHidden}, 1)},
                            .parameters = weights(2),
                            .bf16_tolerance = 0};
      check::check_op(op_case);
    }
  }
}

TEST_CASE("moe layer: fp64 gradients") {
  check::check_gradient(layer(1, Kernels::kFast), {check::random({4, kHidden}, 5)}, weights(6));
}

TEST_CASE("moe layer: bf16 rows and experts stay close to fp32") {
  const at::Tensor x = check::random({12, kHidden}, 9);
  const std::vector<at::Tensor> p = weights(10);
  const auto run = [&](at::ScalarType type) {
    const std::vector<ParamHandle> handles = {ParamHandle::of(p[0]), ParamHandle::of(p[1].to(type)),
                                              ParamHandle::of(p[2].to(type))};
    check::CallContext context(12, 0, Kernels::kFast, handles);
    return moe_layer(x.to(type), handles[0], handles[1], handles[2], {.top_k = kExperts}, *context)
        .y_TH;
  };
  const at::Tensor low = run(at::kBFloat16);
  CHECK((low.scalar_type() == at::kBFloat16));
  check::check_close(low, run(at::kFloat), 3e-2);
}

TEST_CASE("moe layer: all tokens to one expert") {
  std::vector<at::Tensor> p = weights(13);
  p[0].zero_();  // all logits tie: everything goes to experts 0 and 1
  const at::Tensor x = check::random({10, kHidden}, 14).requires_grad_();
  const std::vector<ParamHandle> handles = {ParamHandle::of(p[0].requires_grad_()),
                                            ParamHandle::of(p[1].requires_grad_()),
                                            ParamHandle::of(p[2].requires_grad_())};
  check::CallContext context(10, 0, Kernels::kFast, handles);
  const MoeOutput output = moe_layer(x, handles[0], handles[1], handles[2], {.top_k = 1}, *context);
  CHECK(output.routing.index_TK.eq(0).all().item<bool>());
  CHECK(output.routing.stats_2E.select(0, 1).select(0, 0).item<float>() == 10);
  output.y_TH.sum().backward();
  CHECK(p[1].grad().narrow(0, 1, kExperts - 1).eq(0).all().item<bool>());
  CHECK(p[1].grad().select(0, 0).abs().sum().item<float>() > 0);
  // One choice, renormalised to 1: its weight is constant and the router learns nothing from y.
  CHECK(p[0].grad().abs().max().item<float>() < 1e-6F);
}

TEST_CASE("moe layer: a replay plans and decides once, with equal results") {
  const std::vector<at::Tensor> p = weights(16);
  const std::vector<ParamHandle> handles = {ParamHandle::of(p[0]), ParamHandle::of(p[1]),
                                            ParamHandle::of(p[2])};
  const at::Tensor x = check::random({7, kHidden}, 17);
  check::CallContext context(7, 0, Kernels::kFast, handles);
  const auto run = [&] {
    return moe_layer(x, handles[0], handles[1], handles[2], {.top_k = kTopK}, *context).y_TH;
  };
  const at::Tensor first = run();
  const StepContext::ReplayScope replay(*context);
  CHECK(run().equal(first));
  CHECK(context.sorting().plans == 1);
}

TEST_CASE("moe layer: time inside the dispatcher is counted forward and backward") {
  const std::vector<at::Tensor> p = weights(18);
  std::vector<ParamHandle> handles;
  for (const at::Tensor& value : p) handles.push_back(ParamHandle::of(value.requires_grad_()));
  check::CallContext context(64, 0, Kernels::kFast, handles);
  const at::Tensor x = check::random({64, kHidden}, 19).requires_grad_();
  const at::Tensor y =
      moe_layer(x, handles[0], handles[1], handles[2], {.top_k = kTopK}, *context).y_TH;
  const double forward = context.dispatcher_seconds();
  CHECK(forward > 0);
  y.sum().backward();
  CHECK(context.dispatcher_seconds() > forward);
}

}  // namespace keyseat::nn
