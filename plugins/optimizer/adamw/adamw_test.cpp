#include <ATen/TensorOperators.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "keyseat/interfaces/optimizer.h"
#include "keyseat/registry.h"
#include "nn/kernels/targets.h"

using namespace keyseat;

namespace {

using Values = std::map<std::string, OptionValue>;

std::shared_ptr<Optimizer> make_adamw(const Values& values) {
  static Registry registry(make_plugin_search({}));
  Problems problems;
  const auto plugin = registry.load("optimizer", "adamw", problems);
  INFO(problems_text(problems));
  REQUIRE(plugin != nullptr);
  const Options options = resolve_options(plugin->options(), values, "test", problems);
  REQUIRE(problems_text(problems) == "");
  REQUIRE(plugin->validate(options).empty());
  return registry.create<Optimizer>("adamw", options);
}

struct Case {
  ParamSpec spec;
  OptimizerShard shard;
};

// A shard of `count` elements with random master and no history.
std::unique_ptr<Case> make_case(int64_t count, ParamRole role = ParamRole::kMatrix,
                                at::ScalarType compute = at::kFloat) {
  auto made = std::make_unique<Case>();
  made->spec.name = "w";
  made->spec.shape = {count};
  made->spec.role = role;
  made->shard.spec = &made->spec;
  made->shard.name = "unit.w";
  made->shard.end = count;
  made->shard.master = at::randn({count});
  made->shard.grad = at::randn({count});
  made->shard.state = {at::zeros({count}), at::zeros({count})};
  if (compute != at::kFloat) made->shard.compute = at::empty({count}, compute);
  made->shard.lr = 1e-2;
  return made;
}

// torch.optim.AdamW, the single-tensor form.
void torch_step(OptimizerShard& shard, double beta1, double beta2, double eps, double decay) {
  const at::Tensor grad = shard.grad * shard.grad_scale;
  shard.master.mul_(1 - shard.lr * decay);
  shard.state[0].lerp_(grad, 1 - beta1);
  shard.state[1].mul_(beta2).addcmul_(grad, grad, 1 - beta2);
  const double step = static_cast<double>(shard.step);
  const double correction1 = 1 - std::pow(beta1, step);
  const double correction2 = std::sqrt(1 - std::pow(beta2, step));
  const at::Tensor denominator = (shard.state[1].sqrt() / correction2).add_(eps);
  shard.master.addcdiv_(shard.state[0], denominator, -shard.lr / correction1);
}

void check_close(const at::Tensor& found, const at::Tensor& expected) {
  CHECK(at::allclose(found, expected, 2e-6, 1e-7));
}

// Four steps of shards of several lengths, beside torch.
void check_steps(const std::string& kernel) {
  const auto adamw = make_adamw(
      {{"beta1", 0.8}, {"beta2", 0.95}, {"eps", 1e-6}, {"weight_decay", 0.1}, {"kernel", kernel}});
  for (int64_t count : {1, 7, 16, 40001}) {
    const auto ours = make_case(count);
    Case theirs = *ours;
    theirs.shard.master = ours->shard.master.clone();
    theirs.shard.state = {at::zeros({count}), at::zeros({count})};
    for (int64_t step = 1; step <= 4; ++step) {
      ours->shard.grad = theirs.shard.grad = at::randn({count});
      ours->shard.step = theirs.shard.step = step;
      ours->shard.lr = theirs.shard.lr = 1e-2 / static_cast<double>(step);
      ours->shard.grad_scale = theirs.shard.grad_scale = 0.3;
      std::vector<OptimizerShard> shards{ours->shard};
      adamw->step(shards);
      torch_step(theirs.shard, 0.8, 0.95, 1e-6, 0.1);
      check_close(ours->shard.master, theirs.shard.master);
      check_close(ours->shard.state[0], theirs.shard.state[0]);
      check_close(ours->shard.state[1], theirs.shard.state[1]);
    }
  }
}

void check_bf16_copy(const std::string& kernel) {
  const auto adamw = make_adamw({{"kernel", kernel}});
  const auto made = make_case(1003, ParamRole::kMatrix, at::kBFloat16);
  made->shard.grad[5] = NAN;
  made->shard.grad[6] = INFINITY;
  std::vector<OptimizerShard> shards{made->shard};
  adamw->step(shards);
  const at::Tensor expected = made->shard.master.to(at::kBFloat16);
  CHECK(at::allclose(made->shard.compute, expected, 0, 0, /*equal_nan=*/true));
}

}  // namespace

TEST_CASE("adamw: the naive kernel steps as torch does; its bf16 copy is the rounded master") {
  check_steps("naive");
  check_bf16_copy("naive");
}

TEST_CASE("adamw: so does the SIMD kernel with every instruction set of this CPU") {
  for (const nn::kernels::Target& target : nn::kernels::supported_targets()) {
    CAPTURE(target.name);
    REQUIRE_FALSE(nn::kernels::use_target(target.name));
    check_steps("simd");
    check_bf16_copy("simd");
  }
  REQUIRE_FALSE(nn::kernels::use_target("best"));
}

TEST_CASE("adamw: decay by role, and scaled by block") {
  const auto adamw = make_adamw({{"weight_decay", 0.5}});
  const auto kept_share = [&](ParamRole role, double scale) {
    const auto made = make_case(33, role);
    made->shard.grad = at::zeros({33});
    made->shard.weight_decay_scale = scale;
    const at::Tensor before = made->shard.master.clone();
    std::vector<OptimizerShard> shards{made->shard};
    adamw->step(shards);
    return (made->shard.master / before).mean().item<double>();
  };
  CHECK(kept_share(ParamRole::kMatrix, 1) == doctest::Approx(1 - 1e-2 * 0.5));
  CHECK(kept_share(ParamRole::kEmbedding, 1) == doctest::Approx(1 - 1e-2 * 0.5));
  CHECK(kept_share(ParamRole::kMatrix, 2) == doctest::Approx(1 - 1e-2));
  CHECK(kept_share(ParamRole::kNorm, 1) == doctest::Approx(1));
  CHECK(kept_share(ParamRole::kBias, 1) == doctest::Approx(1));
}

TEST_CASE("adamw: a shard cut anywhere gives the same bits") {
  const auto adamw = make_adamw({});
  const auto whole = make_case(50021);
  const auto parts = std::make_unique<Case>(*whole);
  parts->shard.master = whole->shard.master.clone();
  parts->shard.state = {at::zeros({50021}), at::zeros({50021})};
  std::vector<OptimizerShard> one{whole->shard};
  adamw->step(one);
  std::vector<OptimizerShard> several;
  int64_t begin = 0;
  for (int64_t end : {3, 3, 20000, 36421, 50021}) {
    OptimizerShard shard = parts->shard;
    shard.begin = begin;
    shard.end = end;
    for (at::Tensor* tensor : {&shard.master, &shard.grad, &shard.state[0], &shard.state[1]}) {
      *tensor = tensor->narrow(0, begin, end - begin);
    }
    several.push_back(std::move(shard));
    begin = end;
  }
  adamw->step(several);
  CHECK(at::equal(parts->shard.master, whole->shard.master));
  CHECK(at::equal(parts->shard.state[1], whole->shard.state[1]));
}

TEST_CASE("adamw: options that make no sense are refused") {
  Registry registry(make_plugin_search({}));
  Problems problems;
  const auto plugin = registry.load("optimizer", "adamw", problems);
  REQUIRE(plugin != nullptr);
  const Options options = resolve_options(plugin->options(), {{"beta2", 1.0}}, "test", problems);
  REQUIRE(problems.empty());
  CHECK(problems_text(plugin->validate(options)).find("beta2 is 1") != std::string::npos);
  resolve_options(plugin->options(), {{"decay_roles", std::vector<std::string>{"matrices"}}},
                  "test", problems);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].text().find("out of \"bias\", \"embedding\", \"matrix\"") != std::string::npos);
}
