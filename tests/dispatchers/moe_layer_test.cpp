// The whole mixture-of-experts layer on several ranks against one process with all experts: router,
// dispatcher, grouped experts, statistics; and what must not happen twice when it runs again.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/testing.h"
#include "tests/dispatchers/layer.h"
#include "tests/dispatchers/mutants.h"
#include "tests/dispatchers/wrapped_dispatcher.h"
#include "tests/mutation.h"

using namespace keyseat;
using namespace keyseat::test;

namespace {

constexpr int64_t kHidden = 6, kExperts = 8, kWidth = 4;

at::Tensor normal(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

struct LayerValues {
  at::Tensor router, gate_up, down;
  std::vector<at::Tensor> x, dy;  // per rank
  std::vector<int64_t> real;
  nn::RouterOptions options{.top_k = 2};
};

// Rank 0 has a padding tail as long as its tokens, rank 1 one token, the last rank none.
LayerValues layer_values(int64_t world) {
  LayerValues values;
  values.router = normal({kExperts, kHidden}, 1);
  values.gate_up = normal({kExperts, 2 * kWidth, kHidden}, 2);
  values.down = normal({kExperts, kHidden, kWidth}, 3);
  for (int64_t rank = 0; rank < world; ++rank) {
    const int64_t real = rank == 0 ? 5 : rank == 1 ? 1 : rank == world - 1 ? 0 : 6;
    const int64_t rows = rank == 0 ? 2 * real : real;
    values.real.push_back(real);
    values.x.push_back(normal({rows, kHidden}, 10 + static_cast<uint64_t>(rank)));
    values.dy.push_back(normal({rows, kHidden}, 30 + static_cast<uint64_t>(rank)));
    values.dy.back().narrow(0, real, rows - real).zero_();  // nobody reads the tail
  }
  return values;
}

struct LayerResults {
  at::Tensor y, dx, drouter, dgate_up, ddown, stats;
  std::string wrong = {};
};

LayerResults run_layer(const LayerValues& values, const at::Tensor& x_value, const at::Tensor& dy,
                       const std::vector<at::Tensor>& weights, StepContext& context,
                       const std::vector<ParamHandle>& p, int runs = 1) {
  const at::Tensor x = x_value.clone().requires_grad_();
  nn::MoeOutput output = nn::moe_layer(x, p[0], p[1], p[2], values.options, context);
  const at::Tensor first = output.y_TH.detach();
  std::string wrong;
  for (int run = 1; run < runs; ++run) {  // as full recompute does before the backward
    const StepContext::ReplayScope replay(context);
    output = nn::moe_layer(x, p[0], p[1], p[2], values.options, context);
    if (!output.y_TH.equal(first)) wrong += "a second run gave another y; ";
  }
  const auto g =
      torch::autograd::grad({output.y_TH}, {x, weights[0], weights[1], weights[2]}, {dy});
  return {output.y_TH.detach(), g[0], g[1], g[2], g[3], output.routing.stats_2E.detach(), wrong};
}

std::vector<ParamHandle> handles_of(const std::vector<at::Tensor>& weights) {
  std::vector<ParamHandle> handles;
  for (const at::Tensor& weight : weights) handles.push_back(ParamHandle::of(weight));
  return handles;
}

LayerResults one_process(const LayerValues& values) {
  std::vector<at::Tensor> x, dy;
  for (size_t rank = 0; rank < values.x.size(); ++rank) {  // without any padding
    x.push_back(values.x[rank].narrow(0, 0, values.real[rank]));
    dy.push_back(values.dy[rank].narrow(0, 0, values.real[rank]));
  }
  const std::vector<at::Tensor> weights = {values.router.clone().requires_grad_(),
                                           values.gate_up.clone().requires_grad_(),
                                           values.down.clone().requires_grad_()};
  const auto handles = handles_of(weights);
  const at::Tensor rows = at::cat(x);
  nn::check::CallContext context(rows.size(0), 0, Kernels::kFast, handles);
  return run_layer(values, rows, at::cat(dy), weights, *context, handles);
}

std::vector<std::string> layer_differences(const LayerValues& values,
                                           const DispatcherLayout& layout,
                                           const MakeDispatcher& make, int runs = 1) {
  std::vector<LayerResults> ranks(static_cast<size_t>(layout.world()));
  const int64_t local = kExperts / layout.expert;
  std::vector<std::string> wrong;
  try {
    ThreadWorld({.world = layout.world(), .ranks_per_node = layout.ranks_per_node})
        .run([&](int64_t rank, ThreadComm& comm) {
          const auto r = static_cast<size_t>(rank);
          const auto dispatcher = make();
          const Mesh mesh = layout.mesh(rank);
          const int64_t first = mesh.coordinate(Axis::kExpert) * local;
          const std::vector<at::Tensor> weights = {
              values.router.clone().requires_grad_(),
              values.gate_up.narrow(0, first, local).clone().requires_grad_(),
              values.down.narrow(0, first, local).clone().requires_grad_()};
          const auto handles = handles_of(weights);
          const int64_t real = values.real[r];
          nn::check::CallContext context(real, values.x[r].size(0) - real, mesh, comm, *dispatcher,
                                         handles);
          ranks[r] = run_layer(values, values.x[r], values.dy[r], weights, *context, handles, runs);
          const DispatcherReport report = dispatcher->take_report();
          if (report.choices != real * values.options.top_k || report.capacity != 0) {
            ranks[r].wrong += fmt::format("{} choices were counted; ", report.choices);
          }
        });
  } catch (const std::exception& error) {
    return {error.what()};
  }
  const LayerResults expected = one_process(values);
  std::vector<at::Tensor> y, dx;
  LayerResults sum{{},
                   {},
                   at::zeros_like(expected.drouter),
                   at::zeros_like(expected.dgate_up),
                   at::zeros_like(expected.ddown),
                   at::zeros_like(expected.stats)};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const LayerResults& r = ranks[rank];
    if (!r.wrong.empty()) wrong.push_back(r.wrong);
    const int64_t first = layout.mesh(static_cast<int64_t>(rank)).coordinate(Axis::kExpert) * local;
    y.push_back(r.y.narrow(0, 0, values.real[rank]));
    dx.push_back(r.dx.narrow(0, 0, values.real[rank]));
    sum.drouter.add_(r.drouter);
    sum.stats.add_(r.stats);
    sum.dgate_up.narrow(0, first, local).add_(r.dgate_up);
    sum.ddown.narrow(0, first, local).add_(r.ddown);
  }
  const auto compare = [&](const char* what, const at::Tensor& got, const at::Tensor& wanted) {
    const double error = (got - wanted).norm().item<double>() / wanted.norm().item<double>();
    if (!(error <= 1e-5))
      wrong.push_back(fmt::format("{}: {} is off by {:.2g}", layout.name, what, error));
  };
  compare("y", at::cat(y), expected.y);
  compare("the gradient of x", at::cat(dx), expected.dx);
  compare("the gradient of the router", sum.drouter, expected.drouter);
  compare("the gradient of gate and up", sum.dgate_up, expected.dgate_up);
  compare("the gradient of down", sum.ddown, expected.ddown);
  compare("the statistics", sum.stats, expected.stats);
  return wrong;
}

const std::vector<DispatcherLayout>& layer_layouts() {
  static const std::vector<DispatcherLayout> layouts{
      {.name = "expert 2", .expert = 2},
      {.name = "2 nodes of 2", .expert = 4, .ranks_per_node = 2}};
  return layouts;
}

// Plans again when a layer runs again, as code does that keeps no plan; with `flips` the router has
// broken its ties in another way by then.
class Forgetful final : public WrappedDispatcher {
 public:
  Forgetful(std::shared_ptr<Dispatcher> inner, bool flips)
      : WrappedDispatcher(std::move(inner)), flips_(flips) {}

 private:
  std::shared_ptr<DispatchPlan> plan_(const at::Tensor& index, int64_t experts,
                                      StepContext& context) override {
    index_ = index;
    return WrappedDispatcher::plan_(index, experts, context);
  }
  Dispatched dispatch_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& x,
                       const at::Tensor& weight, StepContext& context) override {
    plan_of_last_ = plan;
    if (context.replay()) {
      const at::Tensor moved = index_.add(1).remainder(kExperts).masked_fill(index_.lt(0), -1);
      plan_of_last_ = this->plan(flips_ ? moved : index_, kExperts, context);
    }
    return WrappedDispatcher::dispatch_(plan_of_last_, x, weight, context);
  }
  at::Tensor combine_(const std::shared_ptr<DispatchPlan>& /*plan*/, const at::Tensor& rows,
                      StepContext& context) override {
    return WrappedDispatcher::combine_(plan_of_last_, rows, context);
  }
  bool flips_;
  std::shared_ptr<DispatchPlan> plan_of_last_;
  at::Tensor index_;
};

MakeDispatcher forgetful(bool flips) {
  return [flips, make = plugin_dispatcher("alltoall")] {
    return std::make_shared<Forgetful>(make(), flips);
  };
}

}  // namespace

TEST_CASE("bug class 1: raw gradients of experts are those of one process on the joint batch") {
  for (const char* name : {"allgather", "alltoall", "hybrid_ep"}) {
    for (const DispatcherLayout& layout : layer_layouts()) {
      const auto wrong =
          layer_differences(layer_values(layout.world()), layout, plugin_dispatcher(name));
      CHECK_MESSAGE(wrong.empty(), name, ": ", fmt::format("{}", fmt::join(wrong, "\n")));
    }
  }
  const Mutation wrong_on_purpose("expert gradients times EP");
  CHECK_FALSE(layer_differences(layer_values(2), layer_layouts()[0], mutant_dispatcher("alltoall"))
                  .empty());
}

TEST_CASE("bug class 9: a layer that runs again counts nothing twice") {
  for (const char* name : {"allgather", "alltoall", "hybrid_ep"}) {
    for (const DispatcherLayout& layout : layer_layouts()) {
      const auto wrong = layer_differences(layer_values(layout.world()), layout,
                                           plugin_dispatcher(name), /*runs=*/3);
      CHECK_MESSAGE(wrong.empty(), name, ": ", fmt::format("{}", fmt::join(wrong, "\n")));
    }
  }
  CHECK_FALSE(layer_differences(layer_values(2), layer_layouts()[0], forgetful(false), 3).empty());
}

TEST_CASE("bug class 10: with all logits tied, a layer that runs again routes as before") {
  LayerValues values = layer_values(2);
  values.router.zero_();
  for (const char* name : {"allgather", "alltoall", "hybrid_ep"}) {
    CHECK(layer_differences(values, layer_layouts()[0], plugin_dispatcher(name), 2).empty());
  }
  CHECK_FALSE(layer_differences(values, layer_layouts()[0], forgetful(true), 2).empty());
}
