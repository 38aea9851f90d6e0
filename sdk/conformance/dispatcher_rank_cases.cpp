// A dispatcher on several ranks, which are threads of this process with a communicator that ends
// the case where their calls do not match. Every rank knows its own result and gradients without
// moving a row: expert e multiplies its rows by e + 1. Legend: T tokens of a rank, K choices, M
// dispatched rows, H hidden, E experts, e local experts.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/mesh.h"
#include "sdk/conformance/dispatcher_values.h"
#include "sdk/conformance/subject.h"
#include "tests/ranks/thread_comm.h"

namespace keyseat::conformance {
namespace {

constexpr int64_t kEqualTokens = 7;

// How the tokens of a step lie on the ranks.
struct Spread {
  std::string name;
  std::vector<int64_t> tokens;  // by rank, over and over
  int64_t only_expert = -1;     // all choices go to it
};

std::vector<Spread> spreads(bool equal_tokens) {
  if (equal_tokens) {
    return {{"equal ranks", {kEqualTokens}}, {"all tokens to one expert", {kEqualTokens}, 5}};
  }
  return {{"equal ranks", {kEqualTokens}},
          {"uneven ranks, one of them without a token", {13, 0, 5, 1}},
          {"all tokens to one expert", {6, 9}, 5},
          {"no token on any rank", {0}}};
}

at::Tensor index_of(const Spread& spread, int64_t rank) {
  const int64_t tokens = spread.tokens[static_cast<size_t>(rank) % spread.tokens.size()];
  if (spread.only_expert >= 0) return at::full({tokens, 1}, spread.only_expert, at::kLong);
  at::Tensor index_TK = random({tokens, kExperts}, 100 + static_cast<uint64_t>(rank))
                            .argsort(1, false)
                            .narrow(1, 0, kTopK)
                            .contiguous();
  if (tokens > 2) index_TK[tokens - 1].fill_(-1);  // a padding row
  return index_TK;
}

struct RankContext {
  RankContext(int64_t tokens, const Mesh& mesh, Comm& comm, Dispatcher& dispatcher)
      : context([&] {
          row.counts.tokens = tokens;
          StepContext::State state;
          state.unit = "check.unit";
          state.row = &row;
          state.mesh = &mesh;
          state.comm = &comm;
          state.dispatcher = &dispatcher;
          state.kept = &kept;
          return state;
        }()) {}
  RowFacts row;
  std::vector<StepContext::Kept> kept;
  StepContext context;
};

void check_counts(const Dispatched& sent, const Spread& spread, int64_t world, int64_t rank) {
  const int64_t local = kExperts / world;
  at::Tensor expected_E = at::zeros({kExperts}, at::kLong);
  for (int64_t other = 0; other < world; ++other) {
    const at::Tensor flat = index_of(spread, other).reshape({-1});
    expected_E.scatter_add_(0, flat.clamp_min(0), flat.ge(0).to(at::kLong));
  }
  expect_equal(fmt::format("tokens_per_expert of rank {}", rank), sent.tokens_per_expert_E,
               expected_E.narrow(0, rank * local, local));
}

// One layer forward and backward on this rank.
void run_rank(Dispatcher& dispatcher, const Mesh& mesh, Comm& comm, const Spread& spread) {
  const int64_t world = mesh.world(), rank = mesh.rank(), local = kExperts / world;
  const at::Tensor index_TK = index_of(spread, rank);
  const int64_t tokens = index_TK.size(0);
  const auto seed = static_cast<uint64_t>(10 * rank);
  RankContext call(tokens, mesh, comm, dispatcher);
  const at::Tensor x_TH = random({tokens, kHidden}, seed + 1).sub(0.5).requires_grad_();
  const at::Tensor weight_TK = random(index_TK.sizes(), seed + 2).requires_grad_();
  const auto plan = dispatcher.plan(index_TK, kExperts, call.context);
  const Dispatched sent = dispatcher.dispatch(plan, x_TH, weight_TK, call.context);
  check_counts(sent, spread, world, rank);
  std::vector<at::Tensor> factors;
  for (int64_t e = 0; e < local; ++e) {
    factors.push_back(at::full({sent.tokens_per_expert_E[e].item<int64_t>()},
                               static_cast<double>(rank * local + e + 1), at::kFloat));
  }
  const int64_t routed = sent.tokens_per_expert_E.sum().item<int64_t>();
  factors.push_back(at::zeros({sent.rows_MH.size(0) - routed}, at::kFloat));
  const at::Tensor rows_MH =
      sent.rows_MH * sent.row_weight_M.unsqueeze(1) * at::cat(factors).unsqueeze(1);
  const at::Tensor y_TH = dispatcher.combine(plan, rows_MH, call.context);
  const at::Tensor dy_TH = random({tokens, kHidden}, seed + 3);
  const auto gradients = torch::autograd::grad({y_TH}, {x_TH, weight_TK}, {dy_TH});
  const at::Tensor factor_TK = index_TK.add(1).to(at::kFloat);  // 0 where not routed
  const at::Tensor scale_T1 = factor_TK.mul(weight_TK).sum(1, true).detach();
  const std::string where = fmt::format(" on rank {}", rank);
  expect_close("the combined result" + where, y_TH.detach(), scale_T1 * x_TH.detach(), kLimit);
  expect_close("the gradient of x" + where, gradients[0], scale_T1 * dy_TH, kLimit);
  expect_close("the gradient of the routing weights" + where, gradients[1],
               factor_TK * (x_TH.detach() * dy_TH).sum(1, true), kLimit);
}

Mesh mesh_of(int64_t world, int64_t rank) {
  Problems problems;
  Mesh mesh = Mesh::build({.shard = world, .expert = world}, world, rank, 2, problems);
  if (!problems.empty()) throw Error(std::move(problems));
  return mesh;
}

void run_world(const Subject& subject, int64_t world, const Spread& spread) {
  test::ThreadWorld ranks({.world = world, .ranks_per_node = 2});
  ranks.run([&](int64_t rank, test::ThreadComm& comm) {
    const auto dispatcher = subject.make<Dispatcher>();
    const Mesh mesh = mesh_of(world, rank);
    run_rank(*dispatcher, mesh, comm, spread);
    run_rank(*dispatcher, mesh, comm, spread);  // a second micro-batch
  });
}

}  // namespace

void dispatcher_rank_cases(const Subject& subject, Cases& cases) {
  for (const int64_t world : {2, 4}) {
    const std::string name = fmt::format("{} ranks, forward and backward", world);
    if (!subject.options) {
      cases.run(name, [&] { skip(subject.without_options); });
      continue;
    }
    std::vector<Spread> all;
    bool served = false;
    cases.run(fmt::format("{} ranks: served, or refused before anything is allocated", world), [&] {
      const auto dispatcher = subject.make<Dispatcher>();
      all = spreads(dispatcher->capabilities().equal_tokens);
      const Problems problems = dispatcher->validate(
          {.experts = kExperts, .top_k = kTopK, .hidden = kHidden}, mesh_of(world, 0));
      for (const Problem& problem : problems) {
        expect(problem.code == Code::kC4Combination, "the reason is not C4: " + problem.text());
      }
      served = problems.empty();
    });
    for (const Spread& spread : served ? all : std::vector<Spread>{}) {
      cases.run(name + ": " + spread.name, [&] { run_world(subject, world, spread); });
    }
  }
}

}  // namespace keyseat::conformance
