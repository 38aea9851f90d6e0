#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include "keyseat/interfaces/recompute.h"
#include "keyseat/params.h"
#include "plugin/plugin_fixture.h"

using namespace keyseat;
using namespace keyseat::testing;

// Losses and gradients of a whole model against recompute/none: tests/executor.

namespace {

using TensorList = std::vector<at::Tensor>;

std::shared_ptr<Recompute> selective(const std::vector<std::string>& regions) {
  return make_plugin<Recompute>("selective", {{"regions", regions}});
}

// How often `region` runs in forward and backward of a sum of squares.
int runs_of(const std::vector<std::string>& regions, Region region) {
  int runs = 0;
  const RegionFunction square = [&](const TensorList& inputs) {
    ++runs;
    return TensorList{inputs[0] * inputs[0]};
  };
  const at::Tensor x_T = at::ones({3}).mul_(3).requires_grad_(true);
  StepContext context({});
  const TensorList outputs = selective(regions)->run(region, square, {x_T}, context);
  CHECK(runs == 1);
  outputs[0].sum().backward();
  CHECK(x_T.grad().equal(at::ones({3}).mul_(6)));
  return runs;
}

}  // namespace

TEST_CASE("recompute/selective: chosen regions and those inside of them run twice, others once") {
  CHECK(runs_of({"mlp"}, Region::kMlp) == 2);
  CHECK(runs_of({"mlp"}, Region::kLayernorm) == 1);
  CHECK(runs_of({"attn"}, Region::kCoreAttn) == 2);
  CHECK(runs_of({"core_attn"}, Region::kAttn) == 1);
  CHECK(runs_of({"moe"}, Region::kMoeAct) == 2);
}

TEST_CASE("recompute/selective: a region inside one that runs again is not run a third time") {
  const auto recompute = selective({"moe"});
  StepContext::State state;
  state.recompute = recompute.get();
  StepContext context(state);
  int inner = 0, outer = 0;
  const RegionFunction square = [&](const TensorList& inputs) {
    ++inner;
    return TensorList{inputs[0] * inputs[0]};
  };
  const RegionFunction both = [&](const TensorList& inputs) {
    ++outer;
    return context.region(Region::kMoeAct, square, {inputs[0] + 1});
  };
  const at::Tensor x_T = at::ones({2}).requires_grad_(true);
  context.region(Region::kMoe, both, {x_T})[0].sum().backward();
  CHECK(outer == 2);
  CHECK(inner == 2);
  CHECK(x_T.grad().equal(at::ones({2}).mul_(4)));
}

TEST_CASE("recompute/selective: gradients of parameters arrive, also where no input needs one") {
  const std::vector<ParamSpec> specs(1);
  const ParamHandle weight = ParamHandle::of(at::ones({3}).mul_(2).requires_grad_(true));
  const Params params(&specs, {weight});
  StepContext::State state;
  state.params = &params;
  StepContext context(state);
  const RegionFunction scale = [weight](const TensorList& inputs) {
    return TensorList{inputs[0] * weight.value()};
  };
  const auto outputs =
      selective({"layernorm"})->run(Region::kLayernorm, scale, {at::ones({3}).mul_(5)}, context);
  REQUIRE(outputs[0].requires_grad());
  outputs[0].sum().backward();
  CHECK(weight.value().grad().equal(at::ones({3}).mul_(5)));
}

TEST_CASE("recompute/selective: a tensor that was captured instead of passed is R4") {
  StepContext context({});
  const at::Tensor captured_T = at::ones({3}).requires_grad_(true);
  const RegionFunction multiply = [captured_T](const TensorList& inputs) {
    return TensorList{inputs[0] * captured_T};
  };
  const at::Tensor x_T = at::ones({3}).requires_grad_(true);
  const auto outputs = selective({"mlp"})->run(Region::kMlp, multiply, {x_T}, context);
  const Problem problem = problem_thrown([&] { outputs[0].sum().backward(); });
  CHECK(problem.code == Code::kR4Contract);
  CHECK(problem.text().find("region mlp") != std::string::npos);
}

TEST_CASE("recompute/selective: an unknown region is refused by name") {
  const Problems problems =
      problems_of("recompute", "selective", {{"regions", std::vector<std::string>{"moe_acts"}}});
  check_problem(problems, Code::kC3Value, "moe_acts");
}
