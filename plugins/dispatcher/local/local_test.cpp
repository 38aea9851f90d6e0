#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/mesh.h"
#include "keyseat/registry.h"
#include "nn/testing.h"

namespace {

using keyseat::Dispatcher;
using keyseat::nn::check::CallContext;

std::shared_ptr<Dispatcher> make(int64_t virtual_ranks) {
  keyseat::Registry registry(keyseat::make_plugin_search({}));
  keyseat::Problems problems;
  const auto plugin = registry.load("dispatcher", "local", problems);
  REQUIRE(plugin != nullptr);
  const keyseat::Options options = keyseat::resolve_options(
      plugin->options(), {{"virtual_ranks", virtual_ranks}}, "test", problems);
  REQUIRE(problems.empty());
  return registry.create<Dispatcher>("local", options);
}

at::Tensor random(at::IntArrayRef shape, uint64_t seed) {
  return at::rand(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

// Everything that comes out of one layer whose expert e multiplies its rows by e + 1.
struct Outcome {
  at::Tensor rows, weights, counts, y, x_gradient, weight_gradient;
  std::vector<int64_t> host_counts;
};

Outcome run(Dispatcher& dispatcher, const at::Tensor& index_TK, int64_t experts) {
  const int64_t tokens = index_TK.size(0);
  CallContext context(tokens, 0, keyseat::Kernels::kFast, {}, &dispatcher);
  const at::Tensor x_TH = random({tokens, 5}, 1).sub(0.5).requires_grad_();
  const at::Tensor weight_TK = random(index_TK.sizes(), 2).requires_grad_();
  const auto plan = dispatcher.plan(index_TK, experts, *context);
  const keyseat::Dispatched sent = dispatcher.dispatch(plan, x_TH, weight_TK, *context);
  std::vector<double> factors;
  for (size_t e = 0; e < sent.host_tokens_per_expert.size(); ++e) {
    factors.insert(factors.end(), sent.host_tokens_per_expert[e], static_cast<double>(e + 1));
  }
  const at::Tensor factor_M = at::tensor(factors, at::kFloat);
  const at::Tensor rows =
      sent.rows_MH.mul(factor_M.unsqueeze(1)).mul(sent.row_weight_M.unsqueeze(1));
  const at::Tensor y = dispatcher.combine(plan, rows, *context);
  const at::Tensor dy = at::full({tokens, 5}, 0.5);
  const auto gradients = torch::autograd::grad({y}, {x_TH, weight_TK}, {dy});

  // What the layer means, without moving a row.
  const at::Tensor routed = index_TK.ge(0);
  const at::Tensor scale = index_TK.add(1).to(at::kFloat).mul(routed).mul(weight_TK).sum(1, true);
  CHECK(y.allclose(scale.mul(x_TH), 1e-5, 1e-6));
  CHECK(gradients[0].allclose(scale.mul(0.5).expand({tokens, 5}), 1e-5, 1e-6));
  CHECK(gradients[1].allclose(
      index_TK.add(1).to(at::kFloat).mul(routed).mul(x_TH.sum(1, true)).mul(0.5), 1e-5, 1e-5));
  return {sent.rows_MH, sent.row_weight_M, sent.tokens_per_expert_E,   y,
          gradients[0], gradients[1],      sent.host_tokens_per_expert};
}

at::Tensor random_index(int64_t tokens, int64_t top_k, int64_t experts) {
  return random({tokens, experts}, 3)
      .argsort(1, /*descending=*/false)
      .narrow(1, 0, top_k)
      .contiguous();
}

}  // namespace

TEST_CASE("dispatcher/local: rows sorted by expert, then token; weights and counts with them") {
  const auto dispatcher = make(1);
  CHECK(dispatcher->capabilities().host_counts);
  const at::Tensor index = at::tensor({2, 0, 0, 1, -1, -1, 2, -1}, at::kLong).view({4, 2});
  const at::Tensor x = at::tensor({10, 11, 12, 13}, at::kFloat).view({4, 1});
  const at::Tensor weight = at::tensor({1, 2, 3, 4, 5, 6, 7, 8}, at::kFloat).view({4, 2});
  CallContext context(4, 0, keyseat::Kernels::kFast, {}, dispatcher.get());
  const auto plan = dispatcher->plan(index, 4, *context);
  const keyseat::Dispatched sent = dispatcher->dispatch(plan, x, weight, *context);
  CHECK(sent.rows_MH.equal(at::tensor({10, 11, 11, 10, 13}, at::kFloat).view({5, 1})));
  CHECK(sent.row_weight_M.equal(at::tensor({2, 3, 4, 1, 7}, at::kFloat)));
  CHECK(sent.tokens_per_expert_E.equal(at::tensor({2, 1, 2, 0}, at::kLong)));
  CHECK((sent.host_tokens_per_expert == std::vector<int64_t>{2, 1, 2, 0}));
  CHECK(dispatcher->combine(plan, sent.rows_MH, *context)
            .equal(at::tensor({20, 22, 0, 13}, at::kFloat).view({4, 1})));
}

TEST_CASE("dispatcher/local: virtual ranks change nothing, bit for bit") {
  const int64_t experts = 8, top_k = 3;
  at::Tensor one_expert = at::full({9, 1}, 5, at::kLong);
  at::Tensor with_tail = random_index(10, top_k, experts);
  with_tail.narrow(0, 6, 4).fill_(-1);
  const std::vector<at::Tensor> cases = {random_index(37, top_k, experts),
                                         random_index(3, top_k, experts),  // fewer than ranks
                                         at::zeros({0, top_k}, at::kLong), one_expert, with_tail};
  for (size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    const Outcome expected = run(*make(1), cases[i], experts);
    for (const int64_t ranks : {2, 4, 8}) {
      CAPTURE(ranks);
      const Outcome outcome = run(*make(ranks), cases[i], experts);
      CHECK(outcome.rows.equal(expected.rows));
      CHECK(outcome.weights.equal(expected.weights));
      CHECK(outcome.counts.equal(expected.counts));
      CHECK(outcome.y.equal(expected.y));
      CHECK(outcome.x_gradient.equal(expected.x_gradient));
      CHECK(outcome.weight_gradient.equal(expected.weight_gradient));
      CHECK(outcome.host_counts == expected.host_counts);
    }
  }
}

TEST_CASE("dispatcher/local: meta tensors keep their shapes") {
  for (const int64_t ranks : {1, 4}) {
    const auto dispatcher = make(ranks);
    CallContext context(6, 0, keyseat::Kernels::kFast, {}, dispatcher.get());
    const at::Tensor index = at::zeros({6, 2}, at::TensorOptions(at::kLong).device(at::kMeta));
    const auto plan = dispatcher->plan(index, 4, *context);
    const keyseat::Dispatched sent = dispatcher->dispatch(plan, at::zeros({6, 5}, at::kMeta),
                                                          at::zeros({6, 2}, at::kMeta), *context);
    CHECK((sent.rows_MH.sizes() == at::IntArrayRef{12, 5}));
    const at::Tensor y = dispatcher->combine(plan, sent.rows_MH, *context);
    CHECK(y.is_meta());
    CHECK((y.sizes() == at::IntArrayRef{6, 5}));
  }
}

TEST_CASE("dispatcher/local: what does not fit is refused before anything is allocated") {
  const keyseat::Problems problems = make(4)->validate({.experts = 6}, keyseat::Mesh());
  REQUIRE(problems.size() == 1);
  CHECK((problems[0].code == keyseat::Code::kC4Combination));
  CHECK(problems[0].what ==
        "option \"virtual_ranks\": 4 does not divide the 6 experts of the model");
  CHECK(make(3)->validate({.experts = 6}, keyseat::Mesh()).empty());

  keyseat::Problems none;
  const keyseat::Mesh mesh =
      keyseat::Mesh::build({.shard = 2, .expert = 2}, /*world=*/2, /*rank=*/0, 2, none);
  CHECK(make(1)->validate({.experts = 6}, mesh).size() == 1);
}

TEST_CASE("dispatcher/local: an index past the experts is a broken contract") {
  const auto dispatcher = make(1);
  CallContext context(1, 0, keyseat::Kernels::kFast, {}, dispatcher.get());
  CHECK_THROWS_AS(dispatcher->plan(at::full({1, 1}, 4, at::kLong), 4, *context), keyseat::Error);
  CHECK_THROWS_AS(dispatcher->plan(at::full({1, 1}, -2, at::kLong), 4, *context), keyseat::Error);
}
