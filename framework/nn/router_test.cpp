#include "keyseat/nn/router.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include "keyseat/status.h"
#include "nn/op_check.h"
#include "nn/testing.h"

namespace keyseat::nn {
namespace {

// Everything differentiable of a routing as one vector.
at::Tensor flat(const Routing& routing) {
  return at::cat({routing.logits_TE.reshape({-1}), routing.weight_TK.reshape({-1}),
                  routing.stats_2E.select(0, 0), routing.z_1});
}

check::Op router(const RouterOptions& options, int64_t padding, Kernels kernels) {
  return [=](const auto& inputs, const auto& parameters) {
    check::CallContext context(inputs[0].size(0) - padding, padding, kernels, parameters);
    return flat(route(inputs[0], parameters[0], options, *context));
  };
}

Routing run_router(const at::Tensor& x_TH, const at::Tensor& gate_EH, const RouterOptions& options,
                   int64_t padding = 0, Kernels kernels = Kernels::kFast) {
  check::CallContext context(x_TH.size(0) - padding, padding, kernels);
  return route(x_TH, ParamHandle::of(gate_EH), options, *context);
}

}  // namespace

TEST_CASE("router: fast against naive, value and gradients") {
  for (const auto& [tokens, padding] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {1, 0}, {130, 0}, {9, 4}, {3, 3}}) {
    for (const bool renormalise : {true, false}) {
      CAPTURE(tokens);
      CAPTURE(padding);
      CAPTURE(renormalise);
      const RouterOptions options{.top_k = 3, .renormalise = renormalise};
      check::check_op({.fast = router(options, padding, Kernels::kFast),
                       .naive = router(options, padding, Kernels::kNaive),
                       .inputs = {check::random({tokens, 12}, 1)},
                       .parameters = {check::random({7, 12}, 2)},
                       .bf16_tolerance = 0});
    }
  }
}

TEST_CASE("router: fp64 gradients through softmax, renormalisation, statistics and z") {
  for (const bool renormalise : {true, false}) {
    for (const Kernels kernels : {Kernels::kFast, Kernels::kNaive}) {
      check::check_gradient(router({.top_k = 2, .renormalise = renormalise}, 1, kernels),
                            {check::random({5, 4}, 3)}, {check::random({6, 4}, 4)});
    }
  }
}

TEST_CASE("router: bf16 rows, fp32 gate: logits, weights and gate gradient are fp32") {
  const at::Tensor x_TH = check::random({6, 8}, 5).to(at::kBFloat16).requires_grad_();
  const at::Tensor gate_EH = check::random({4, 8}, 6).requires_grad_();
  const at::Tensor sink_EH = at::zeros({4, 8});
  check::CallContext context(6);
  const ParamHandle gate = ParamHandle::of(gate_EH, sink_EH);
  const Routing routing = route(x_TH, gate, {.top_k = 2}, *context);
  CHECK((routing.logits_TE.scalar_type() == at::kFloat));
  CHECK((routing.weight_TK.scalar_type() == at::kFloat));
  const at::Tensor expected = x_TH.detach().to(at::kFloat).matmul(gate_EH.detach().t());
  check::check_close(routing.logits_TE, expected, 1e-6);
  const at::Tensor dy = check::random({6, 4}, 7);
  const auto gradients =
      torch::autograd::grad({routing.logits_TE}, {x_TH, gate_EH}, {dy}, {}, false, true);
  CHECK((gradients[0].scalar_type() == at::kBFloat16));
  CHECK_FALSE(gradients[1].defined());
  check::check_close(sink_EH, dy.t().matmul(x_TH.detach().to(at::kFloat)), 1e-5);
}

TEST_CASE("router: statistics and tail") {
  const at::Tensor x_TH = check::random({8, 5}, 8);
  const at::Tensor gate_EH = check::random({4, 5}, 9);
  const Routing routing = run_router(x_TH, gate_EH, {.top_k = 2}, /*padding=*/3);
  const at::Tensor logits = x_TH.narrow(0, 0, 5).matmul(gate_EH.t());
  check::check_close(routing.stats_2E.select(0, 0), at::softmax(logits, 1).sum(0), 1e-6);
  const at::Tensor index = routing.index_TK.narrow(0, 0, 5);
  check::check_close(routing.stats_2E.select(0, 1),
                     at::one_hot(index, 4).sum(at::IntArrayRef{0, 1}).to(at::kFloat), 0);
  check::check_close(routing.z_1, at::logsumexp(logits, {1}).square().sum().reshape({1}), 1e-6);
  check::check_close(routing.weight_TK.narrow(0, 0, 5).sum(1), at::full({5}, 1.0), 1e-6);
  CHECK(routing.index_TK.narrow(0, 5, 3).eq(-1).all().item<bool>());
  CHECK(routing.weight_TK.narrow(0, 5, 3).eq(0).all().item<bool>());
  // The tail is as if it were not there.
  const Routing alone = run_router(x_TH.narrow(0, 0, 5), gate_EH, {.top_k = 2});
  CHECK(alone.stats_2E.equal(routing.stats_2E));
  CHECK(alone.weight_TK.equal(routing.weight_TK.narrow(0, 0, 5)));
}

TEST_CASE("router: equal probabilities go to the lower expert") {
  for (const Kernels kernels : {Kernels::kFast, Kernels::kNaive}) {
    // A zero gate: all experts tie.
    const Routing routing =
        run_router(check::random({3, 4}, 10), at::zeros({6, 4}), {.top_k = 3}, 0, kernels);
    CHECK(routing.index_TK.equal(at::tensor({0, 1, 2, 0, 1, 2, 0, 1, 2}, at::kLong).view({3, 3})));
    const at::Tensor values = at::tensor({0.1, 0.3, 0.2, 0.3, 0.3, 0.2}, at::kFloat).view({1, 6});
    CHECK(
        top_k_by_index(values, 4, kernels).equal(at::tensor({1, 3, 4, 2}, at::kLong).view({1, 4})));
    CHECK(top_k_by_index(values, 6, kernels)
              .equal(at::tensor({1, 3, 4, 2, 5, 0}, at::kLong).view({1, 6})));
    CHECK((top_k_by_index(at::zeros({0, 6}), 2, kernels).sizes() == at::IntArrayRef{0, 2}));
  }
}

TEST_CASE("router: fast top-k equals the stable sort on rows full of ties") {
  const at::Tensor values = check::random({200, 33}, 11).mul(3).round();
  for (const int64_t top_k : {1, 4, 8, 33}) {
    CHECK(top_k_by_index(values, top_k, Kernels::kFast)
              .equal(top_k_by_index(values, top_k, Kernels::kNaive)));
  }
}

TEST_CASE("router: NaN logits still give distinct, valid indices") {
  const at::Tensor index = top_k_by_index(at::full({2, 5}, NAN), 3, Kernels::kFast);
  CHECK(index.equal(at::tensor({0, 1, 2, 0, 1, 2}, at::kLong).view({2, 3})));
}

TEST_CASE("router: refuses what its contract excludes") {
  const at::Tensor x_TH = check::random({2, 4}, 12);
  CHECK_THROWS_AS(run_router(x_TH, check::random({3, 5}, 13), {.top_k = 1}), Error);
  CHECK_THROWS_AS(run_router(x_TH, check::random({3, 4}, 13), {.top_k = 4}), Error);
  CHECK_THROWS_AS(run_router(x_TH, check::random({3, 4}, 13).to(at::kBFloat16), {.top_k = 1}),
                  Error);
}

TEST_CASE("router: the decision is kept; a replay does not decide again") {
  check::CallContext context(4);
  const at::Tensor x_TH = check::random({4, 3}, 14);
  const Routing first =
      route(x_TH, ParamHandle::of(check::random({5, 3}, 15)), {.top_k = 2}, *context);
  const StepContext::ReplayScope replay(*context);
  const Routing second =
      route(x_TH, ParamHandle::of(check::random({5, 3}, 16)), {.top_k = 2}, *context);
  CHECK(first.index_TK.equal(second.index_TK));
  CHECK_FALSE(first.weight_TK.equal(second.weight_TK));
}

TEST_CASE("load balancing: as transformers, per rank in SUM form") {
  constexpr int64_t kLayers = 3, kTokens = 10, kExperts = 5, kTopK = 2;
  std::vector<at::Tensor> stats, probabilities, indices;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const at::Tensor probability = at::softmax(check::random({kTokens, kExperts}, 20 + layer), 1);
    const at::Tensor index = top_k_by_index(probability, kTopK, Kernels::kNaive);
    probabilities.push_back(probability);
    indices.push_back(index);
    stats.push_back(at::cat(
        {probability.sum(0, true),
         at::one_hot(index, kExperts).sum(at::IntArrayRef{0, 1}).to(at::kFloat).unsqueeze(0)}));
  }
  std::vector<at::Tensor> rows;
  for (const at::Tensor& layer : stats) rows.push_back(layer.select(0, 1));
  const at::Tensor counts_LE = at::cat(rows).view({kLayers, kExperts});
  // transformers' load_balancing_loss_func over the concatenated layers.
  const at::Tensor mask = at::one_hot(at::cat(indices), kExperts).to(at::kFloat);
  const at::Tensor per_expert = mask.mean(at::IntArrayRef{0});
  const at::Tensor probability = at::cat(probabilities).mean(0);
  const at::Tensor expected = per_expert.mul(probability.unsqueeze(0)).sum().mul(kExperts);
  const at::Tensor pooled = load_balancing_loss(stats, counts_LE, kTokens, /*pooled=*/true);
  check::check_close(pooled.div(kTokens), expected.reshape({1}), 1e-6);
  at::Tensor mean = at::zeros({1});
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    mean.add_(load_balancing_loss({stats[layer]}, counts_LE.narrow(0, layer, 1), kTokens, true),
              1.0 / kLayers);
  }
  check::check_close(load_balancing_loss(stats, counts_LE, kTokens, false), mean, 1e-6);
  // No tokens: zero, not NaN.
  const at::Tensor none = load_balancing_loss({at::zeros({2, 4})}, at::zeros({1, 4}), 0, true);
  CHECK(none.item<float>() == 0);
}

TEST_CASE("load balancing: gradient flows through the probabilities only") {
  const at::Tensor stats = at::zeros({2, 4}).requires_grad_();
  const at::Tensor counts_LE = at::tensor({3, 1, 0, 4}, at::kLong).view({1, 4});
  load_balancing_loss({stats}, counts_LE, 4, true).backward();
  check::check_close(stats.grad().select(0, 0), counts_LE.select(0, 0).to(at::kFloat), 1e-6);
  CHECK(stats.grad().select(0, 1).eq(0).all().item<bool>());
}

}  // namespace keyseat::nn
