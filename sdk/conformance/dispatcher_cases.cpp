// A dispatcher on one rank, against what it means: expert e multiplies its rows by e + 1, so that
// every result and gradient is known without moving a row; and against the sorting oracle.
// Legend: T tokens, K choices, M dispatched rows, H hidden, E experts, I expert width.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "keyseat/mesh.h"
#include "nn/testing.h"
#include "sdk/conformance/dispatcher_values.h"
#include "sdk/conformance/subject.h"

namespace keyseat::conformance {
namespace {

using nn::check::CallContext;
using nn::check::SortingDispatcher;

// K different experts for each of T tokens.
at::Tensor random_index(int64_t tokens, int64_t top_k, uint64_t seed) {
  return random({tokens, kExperts}, seed).argsort(1, false).narrow(1, 0, top_k).contiguous();
}

struct RoutingCase {
  std::string name;
  at::Tensor index_TK;
};

std::vector<RoutingCase> routings() {
  at::Tensor tail = random_index(19, kTopK, 3);
  tail.narrow(0, 12, 7).fill_(-1);
  at::Tensor holes = random_index(19, kTopK, 4);
  holes.select(1, 1).fill_(-1);
  return {
      {"tokens spread over all experts", random_index(64, kTopK, 1)},
      {"fewer rows than experts, so that some are empty", random_index(2, kTopK, 2)},
      {"all tokens to one expert", at::full({17, 1}, 5, at::kLong)},
      {"all tokens to the last expert", at::full({9, 1}, kExperts - 1, at::kLong)},
      {"one token", random_index(1, kTopK, 5)},
      {"no token", at::zeros({0, kTopK}, at::kLong)},
      {"a padding tail that is not routed", tail},
      {"single choices that are not routed", holes},
      {"nothing is routed", at::full({6, kTopK}, -1, at::kLong)},
  };
}

struct LayerResult {
  at::Tensor y_TH, x_gradient, weight_gradient;
};

int64_t routed_rows(const Dispatched& sent) {
  return sent.tokens_per_expert_E.sum().item<int64_t>();
}

void check_counts(Dispatcher& dispatcher, const Dispatched& sent, const at::Tensor& index_TK) {
  const at::Tensor flat = index_TK.reshape({-1});
  const at::Tensor expected =
      at::zeros({kExperts}, at::kLong).scatter_add(0, flat.clamp_min(0), flat.ge(0).to(at::kLong));
  expect_equal("tokens_per_expert", sent.tokens_per_expert_E, expected);
  expect(sent.rows_MH.size(0) >= routed_rows(sent), "there are fewer rows than are counted");
  const int64_t alignment = dispatcher.capabilities().row_alignment;
  expect(alignment >= 1, "row_alignment is below 1");
  for (size_t e = 0; e < sent.host_tokens_per_expert.size(); ++e) {
    expect(sent.host_tokens_per_expert[e] == expected[static_cast<int64_t>(e)].item<int64_t>(),
           "host_tokens_per_expert is not what the device says");
  }
}

// The factor of every dispatched row: its expert's number plus one; NaN in rows that no expert may
// read.
at::Tensor row_factors(const Dispatched& sent) {
  const int64_t routed = routed_rows(sent);
  std::vector<at::Tensor> parts;
  for (int64_t e = 0; e < kExperts; ++e) {
    parts.push_back(at::full({sent.tokens_per_expert_E[e].item<int64_t>()},
                             static_cast<double>(e + 1), at::kFloat));
  }
  parts.push_back(at::full({sent.rows_MH.size(0) - routed},
                           std::numeric_limits<double>::quiet_NaN(), at::kFloat));
  return at::cat(parts);
}

LayerResult run_layer(Dispatcher& dispatcher, const at::Tensor& index_TK) {
  const int64_t tokens = index_TK.size(0);
  CallContext context(tokens, 0, Kernels::kFast, {}, &dispatcher);
  const at::Tensor x_TH = random({tokens, kHidden}, 11).sub(0.5).requires_grad_();
  const at::Tensor weight_TK = random(index_TK.sizes(), 12).requires_grad_();
  const auto plan = dispatcher.plan(index_TK, kExperts, *context);
  const Dispatched sent = dispatcher.dispatch(plan, x_TH, weight_TK, *context);
  check_counts(dispatcher, sent, index_TK);
  const at::Tensor factor_M = row_factors(sent);
  const at::Tensor known = factor_M.isnan().logical_not().unsqueeze(1);
  // As an expert would: it reads its rows only, the others hold NaN.
  const at::Tensor rows_MH = at::where(
      known, sent.rows_MH * sent.row_weight_M.unsqueeze(1) * factor_M.nan_to_num().unsqueeze(1),
      at::full_like(sent.rows_MH, std::numeric_limits<double>::quiet_NaN()).detach());
  const at::Tensor y_TH = dispatcher.combine(plan, rows_MH, *context);
  const at::Tensor dy_TH = random({tokens, kHidden}, 13);
  const auto gradients =
      torch::autograd::grad({y_TH}, {x_TH, weight_TK}, {dy_TH}, {}, false, /*allow_unused=*/true);
  const auto defined = [](const at::Tensor& gradient, const at::Tensor& of) {
    return gradient.defined() ? gradient : at::zeros(of.sizes());
  };

  const at::Tensor factor_TK = index_TK.add(1).to(at::kFloat);  // 0 where not routed
  const at::Tensor scale_T1 = factor_TK.mul(weight_TK).sum(1, true).detach();
  expect_close("the combined result", y_TH.detach(), scale_T1 * x_TH.detach(), kLimit);
  expect_close("the gradient of x", defined(gradients[0], x_TH), scale_T1 * dy_TH, kLimit);
  expect_close("the gradient of the routing weights", defined(gradients[1], weight_TK),
               factor_TK * (x_TH.detach() * dy_TH).sum(1, true), kLimit);
  return {y_TH.detach(), defined(gradients[0], x_TH), defined(gradients[1], weight_TK)};
}

// Rows of an expert, in an order of their own: a dispatcher may choose any.
void check_rows(Dispatcher& dispatcher) {
  const at::Tensor index_TK = random_index(40, kTopK, 21);
  const at::Tensor x_TH = random({40, kHidden}, 22), weight_TK = random({40, kTopK}, 23);
  SortingDispatcher oracle;
  const auto rows_of = [&](Dispatcher& one) {
    CallContext context(40, 0, Kernels::kFast, {}, &one);
    const Dispatched sent =
        one.dispatch(one.plan(index_TK, kExperts, *context), x_TH, weight_TK, *context);
    const at::Tensor rows =
        at::cat({sent.rows_MH, sent.row_weight_M.unsqueeze(1)}, 1).narrow(0, 0, routed_rows(sent));
    std::vector<at::Tensor> sorted;
    int64_t begin = 0;
    for (int64_t e = 0; e < kExperts; ++e) {
      const int64_t size = sent.tokens_per_expert_E[e].item<int64_t>();
      const at::Tensor own = rows.narrow(0, begin, size);
      sorted.push_back(own.index_select(0, own.select(1, 0).argsort()));
      begin += size;
    }
    return at::cat(sorted);
  };
  expect_equal("the set of rows of each expert, with their weights", rows_of(dispatcher),
               rows_of(oracle));
}

// Two layers of one micro-batch are planned, then run, then gone back through in reverse.
void check_two_layers(Dispatcher& dispatcher) {
  const at::Tensor first = random_index(10, kTopK, 31), second = random_index(10, kTopK, 32);
  const auto run = [&](Dispatcher& one) {
    CallContext context(10, 0, Kernels::kFast, {}, &one);
    const at::Tensor x_TH = random({10, kHidden}, 33).requires_grad_();
    const at::Tensor weight_TK = random({10, kTopK}, 34);
    const auto plan_1 = one.plan(first, kExperts, *context);
    const auto plan_2 = one.plan(second, kExperts, *context);
    const auto layer = [&](const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& x) {
      const Dispatched sent = one.dispatch(plan, x, weight_TK, *context);
      const at::Tensor factor = row_factors(sent).nan_to_num().unsqueeze(1);
      return one.combine(plan, sent.rows_MH * sent.row_weight_M.unsqueeze(1) * factor, *context);
    };
    const at::Tensor y_TH = layer(plan_2, layer(plan_1, x_TH));
    return torch::autograd::grad({y_TH}, {x_TH}, {at::ones_like(y_TH)})[0];
  };
  SortingDispatcher oracle;
  expect_close("the gradient through two layers", run(dispatcher), run(oracle), kLimit);
}

void check_moe_layer(Dispatcher& dispatcher, Kernels kernels) {
  constexpr int64_t kWidth = 10, kTokens = 33;
  const auto run = [&](Dispatcher& one) {
    const at::Tensor x_TH = random({kTokens, kHidden}, 41).sub(0.5).requires_grad_();
    std::vector<ParamHandle> params;
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{kExperts, kHidden},
                                              {kExperts, 2 * kWidth, kHidden},
                                              {kExperts, kHidden, kWidth}}) {
      params.push_back(
          ParamHandle::of(random(shape, 42 + params.size()).sub(0.5).requires_grad_()));
    }
    CallContext context(kTokens, 0, kernels, params, &one);
    nn::RouterOptions options;
    options.top_k = kTopK;
    const at::Tensor y_TH =
        nn::moe_layer(x_TH, params[0], params[1], params[2], options, *context).y_TH;
    std::vector<at::Tensor> found = torch::autograd::grad(
        {y_TH}, {x_TH, params[0].value(), params[1].value(), params[2].value()},
        {random({kTokens, kHidden}, 45)});
    found.push_back(y_TH.detach());
    return found;
  };
  SortingDispatcher oracle;
  const auto found = run(dispatcher), expected = run(oracle);
  const char* names[] = {"the gradient of x", "the gradient of the router",
                         "the gradient of gate and up", "the gradient of down", "the result"};
  for (size_t i = 0; i < found.size(); ++i) expect_close(names[i], found[i], expected[i], kLimit);
}

void check_bf16(Dispatcher& dispatcher) {
  const at::Tensor index_TK = random_index(21, kTopK, 51);
  const at::Tensor x_TH = random({21, kHidden}, 52).to(at::kBFloat16);
  const at::Tensor weight_TK = random({21, kTopK}, 53);
  const auto run = [&](Dispatcher& one) {
    CallContext context(21, 0, Kernels::kFast, {}, &one);
    const auto plan = one.plan(index_TK, kExperts, *context);
    const Dispatched sent = one.dispatch(plan, x_TH, weight_TK, *context);
    return one.combine(plan, sent.rows_MH, *context);
  };
  SortingDispatcher oracle;
  // The sum is in fp32; the order of three terms decides at most the last bit of bf16.
  expect_close("the combined result in bf16", run(dispatcher), run(oracle), 4e-3);
}

void check_meta(Dispatcher& dispatcher) {
  CallContext context(6, 0, Kernels::kFast, {}, &dispatcher);
  const auto plan = dispatcher.plan(
      at::zeros({6, 2}, at::TensorOptions(at::kLong).device(at::kMeta)), kExperts, *context);
  const Dispatched sent = dispatcher.dispatch(plan, at::zeros({6, kHidden}, at::kMeta),
                                              at::zeros({6, 2}, at::kMeta), *context);
  expect(sent.rows_MH.is_meta() && sent.rows_MH.size(0) >= 12, "rows are not 12 or more on meta");
  const at::Tensor y_TH = dispatcher.combine(plan, sent.rows_MH, *context);
  expect(y_TH.is_meta() && y_TH.size(0) == 6, "the result is not [6, H] on meta");
}

}  // namespace

void dispatcher_cases(const Subject& subject, Cases& cases) {
  cases.run("validate: one rank is served", [&] {
    const Problems problems = subject.make<Dispatcher>()->validate(
        {.experts = kExperts, .top_k = kTopK, .hidden = kHidden}, Mesh());
    expect(problems.empty(), problems_text(problems));
  });
  for (const RoutingCase& routing : routings()) {
    cases.run("layer, forward and backward: " + routing.name, [&] {
      const auto dispatcher = subject.make<Dispatcher>();
      const LayerResult first = run_layer(*dispatcher, routing.index_TK);
      const LayerResult again = run_layer(*dispatcher, routing.index_TK);
      expect_equal("the result of the same call again", again.y_TH, first.y_TH);
      expect_equal("the gradient of the same call again", again.x_gradient, first.x_gradient);
    });
  }
  cases.run("rows: each expert gets the rows of its tokens, once",
            [&] { check_rows(*subject.make<Dispatcher>()); });
  cases.run("plans: two layers in flight do not disturb each other",
            [&] { check_two_layers(*subject.make<Dispatcher>()); });
  cases.run("moe_layer: result and all gradients equal those of the sorting oracle", [&] {
    check_moe_layer(*subject.make<Dispatcher>(), Kernels::kFast);
    check_moe_layer(*subject.make<Dispatcher>(), Kernels::kNaive);
  });
  cases.run("bf16: rows keep their dtype and the sum is in fp32",
            [&] { check_bf16(*subject.make<Dispatcher>()); });
  cases.run("meta: shapes without values, for dry runs",
            [&] { check_meta(*subject.make<Dispatcher>()); });
  cases.run("plan: an index outside of the experts is refused", [&] {
    const auto dispatcher = subject.make<Dispatcher>();
    CallContext context(1, 0, Kernels::kFast, {}, dispatcher.get());
    for (const int64_t index : {kExperts, int64_t{-2}}) {
      expect_refused(fmt::format("expert {} of {}", index, kExperts), [&] {
        dispatcher->plan(at::full({1, 1}, index, at::kLong), kExperts, *context);
      });
    }
  });
}

}  // namespace keyseat::conformance
