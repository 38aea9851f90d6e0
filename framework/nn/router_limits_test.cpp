#include "nn/router_limits.h"

#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include "keyseat/nn/router_options.h"
#include "nn/op_check.h"
#include "nn/testing.h"

namespace keyseat::nn {
namespace {

at::Tensor counts_of(const at::Tensor& index_TK, int64_t experts) {
  return at::one_hot(index_TK.clamp_min(0), experts)
      .mul(index_TK.ge(0).unsqueeze(2))
      .sum(at::IntArrayRef{0, 1});
}

Routing run(const at::Tensor& x_TH, const at::Tensor& gate_EH, const RouterOptions& options,
            int64_t padding = 0) {
  check::CallContext context(x_TH.size(0) - padding, padding);
  return route(x_TH, ParamHandle::of(gate_EH), options, *context);
}

Options resolved(const std::map<std::string, OptionValue>& values) {
  Problems problems;
  Options options = resolve_options(router_option_schema(), values, "test", problems);
  CHECK(problems.empty());
  return options;
}

}  // namespace

TEST_CASE("router capacity: the largest weights stay, or the first tokens; ties to the lower row") {
  const at::Tensor index = at::tensor({0, 1, 0, 1, 0, 2, 0, -1}, at::kLong).view({4, 2});
  const at::Tensor weight = at::tensor({.2F, .8F, .7F, .3F, .7F, .3F, .5F, 0.F}).view({4, 2});
  CHECK(drop_above_capacity(index, weight, 3, 2, DropPolicy::kProbability)
            .equal(at::tensor({-1, 1, 0, 1, 0, 2, -1, -1}, at::kLong).view({4, 2})));
  CHECK(drop_above_capacity(index, weight, 3, 1, DropPolicy::kProbability)
            .equal(at::tensor({-1, 1, 0, -1, -1, 2, -1, -1}, at::kLong).view({4, 2})));
  CHECK(drop_above_capacity(index, weight, 3, 2, DropPolicy::kPosition)
            .equal(at::tensor({0, 1, 0, 1, -1, 2, -1, -1}, at::kLong).view({4, 2})));
}

TEST_CASE("router capacity: above the number of tokens it drops nothing") {
  const at::Tensor x = check::random({4, 6}, 1), gate = check::random({2, 6}, 2);
  const Routing natural = run(x, gate, {.top_k = 2});
  for (const DropPolicy policy : {DropPolicy::kProbability, DropPolicy::kPosition}) {
    const RouterOptions options{.top_k = 2, .capacity_factor = 8, .drop_policy = policy};
    CHECK(expert_capacity(options, 4, 2) == 32);
    const Routing limited = run(x, gate, options);
    CHECK(limited.index_TK.equal(natural.index_TK));
    CHECK(limited.weight_TK.equal(natural.weight_TK));
  }
}

TEST_CASE("router capacity: no expert has more, kept weights and statistics stay as they were") {
  const at::Tensor x = check::random({40, 6}, 3), gate = check::random({4, 6}, 4);
  const RouterOptions options{.top_k = 2, .capacity_factor = 0.75};
  const int64_t capacity = expert_capacity(options, 33, 4);
  CHECK(capacity == 13);  // ceil(33 * 2 / 4 * 0.75): the padding tail does not count
  const Routing natural = run(x, gate, {.top_k = 2}, 7);
  const Routing limited = run(x, gate, options, 7);
  CHECK(counts_of(limited.index_TK, 4).le(capacity).all().item<bool>());
  const at::Tensor kept = limited.index_TK.ge(0);
  CHECK(kept.sum().item<int64_t>() < natural.index_TK.ge(0).sum().item<int64_t>());
  CHECK(limited.index_TK.masked_select(kept).equal(natural.index_TK.masked_select(kept)));
  CHECK(limited.weight_TK.equal(natural.weight_TK.mul(kept)));
  CHECK(limited.stats_2E.equal(natural.stats_2E));
  CHECK(limited.z_1.equal(natural.z_1));
}

TEST_CASE("router capacity: a dropped choice gives the router no gradient through its own weight") {
  const at::Tensor x = check::random({12, 5}, 5);
  const RouterOptions options{.top_k = 2, .renormalise = false, .capacity_factor = 0.5};
  const at::Tensor gate = check::random({3, 5}, 6).requires_grad_();
  check::CallContext context(12);
  const Routing limited = route(x, ParamHandle::of(gate), options, *context);
  const at::Tensor dweight = check::random({12, 2}, 7);
  const at::Tensor got = torch::autograd::grad({limited.weight_TK}, {gate}, {dweight})[0];
  const at::Tensor free_gate = gate.detach().clone().requires_grad_();
  check::CallContext free_context(12);
  const Routing natural =
      route(x, ParamHandle::of(free_gate), {.top_k = 2, .renormalise = false}, *free_context);
  const at::Tensor expected = torch::autograd::grad({natural.weight_TK}, {free_gate},
                                                    {dweight.mul(limited.index_TK.ge(0))})[0];
  check::check_close(got, expected, 1e-6);
}

TEST_CASE("router capacity: a replay drops the same choices") {
  const at::Tensor x = check::random({20, 5}, 8), gate = check::random({4, 5}, 9);
  const RouterOptions options{.top_k = 2, .capacity_factor = 0.5};
  check::CallContext context(20);
  const Routing first = route(x, ParamHandle::of(gate), options, *context);
  const StepContext::ReplayScope replay(*context);
  CHECK(route(x, ParamHandle::of(gate.neg()), options, *context).index_TK.equal(first.index_TK));
}

TEST_CASE("router forced balance: every expert equally often, different ones per token") {
  for (const auto& [rows, top_k, experts] : std::vector<std::array<int64_t, 3>>{
           {64, 8, 32}, {30, 3, 8}, {5, 4, 4}, {0, 2, 4}, {7, 1, 5}}) {
    const at::Tensor index = balanced_choices(rows + 2, rows, top_k, experts, 17);
    CHECK(index.narrow(0, rows, 2).eq(-1).all().item<bool>());
    const at::Tensor counts = counts_of(index, experts);
    CHECK(counts.sum().item<int64_t>() == rows * top_k);
    CHECK(counts.max().item<int64_t>() - counts.min().item<int64_t>() <= 1);
    const at::Tensor per_token = at::one_hot(index.narrow(0, 0, rows).reshape({-1}), experts)
                                     .view({rows, top_k, experts})
                                     .sum(1);
    CHECK(per_token.le(1).all().item<bool>());
  }
  CHECK_FALSE(balanced_choices(9, 9, 2, 8, 1).equal(balanced_choices(9, 9, 2, 8, 2)));
  CHECK(balanced_choices(9, 9, 2, 8, 1).equal(balanced_choices(9, 9, 2, 8, 1)));
}

TEST_CASE("router forced balance: the logits still weigh the choices, and learn") {
  const at::Tensor x = check::random({16, 6}, 10);
  const at::Tensor gate = check::random({8, 6}, 11).requires_grad_();
  check::CallContext context(16);
  const Routing routing =
      route(x, ParamHandle::of(gate), {.top_k = 2, .forced_balance = true}, *context);
  CHECK(counts_of(routing.index_TK, 8).eq(4).all().item<bool>());
  check::check_close(routing.weight_TK.sum(1), at::full({16}, 1.0), 1e-6);
  const at::Tensor probability = routing.logits_TE.detach().softmax(1).gather(1, routing.index_TK);
  check::check_close(routing.weight_TK, probability.div(probability.sum(1, true)), 1e-6);
  routing.weight_TK.select(1, 0).sum().backward();
  CHECK(gate.grad().abs().sum().item<float>() > 0);
}

TEST_CASE("router options: what they fill in, what contradicts, and the label of a run") {
  RouterOptions router;
  read_router_options(resolved({}), router);
  CHECK(routing_label(router).empty());
  read_router_options(resolved({{"router_capacity_factor", 1.25},
                                {"router_capacity", std::string("pad")},
                                {"router_drop_policy", std::string("position")},
                                {"router_forced_balance", true}}),
                      router);
  CHECK(router.capacity_pad);
  CHECK(routing_label(router) == "forced balance, capacity 1.25, drop and pad by position");
  CHECK(validate_router_options(resolved({})).empty());
  const Problems problems =
      validate_router_options(resolved({{"router_capacity", std::string("pad")}}));
  REQUIRE(problems.size() == 1);
  CHECK((problems[0].code == Code::kC4Combination));
}

}  // namespace keyseat::nn
