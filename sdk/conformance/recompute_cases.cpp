// A recompute policy against none at all: the same loss and the same gradients, bit for bit.
#include "keyseat/interfaces/recompute.h"

#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "keyseat/mesh.h"
#include "sdk/conformance/small_chain.h"
#include "sdk/conformance/subject.h"

namespace keyseat::conformance {
namespace {

struct StepResult {
  Gradients gradients;
  std::map<std::string, double> losses;
};

StepResult run_step(const Chain& chain, Recompute* recompute, bool with_sinks) {
  const Mesh mesh;
  testing::TestParams params(chain, with_sinks, kSeed);
  ExecutorServices services;
  services.mesh = &mesh;
  services.events = &params;
  services.recompute = recompute;
  Executor executor(chain, services);
  executor.begin_step(3, testing::loss_terms());
  // All micro-batches are in flight at once, and go back in another order than they came.
  std::vector<std::unique_ptr<Store>> stores;
  int64_t number = 0;
  for (Row& row : small_rows()) {
    stores.push_back(executor.begin(std::move(row), number++, true));
    executor.forward(*stores.back(), 0, chain.size());
  }
  for (auto& store : stores) executor.backward(*store, 0, chain.size());
  return {params.gradients(), executor.losses()};
}

void check_region(Recompute& recompute, Region region) {
  StepContext::State state;
  std::vector<StepContext::Kept> kept;
  const Params params;
  state.unit = "check.unit";
  state.params = &params;
  state.kept = &kept;
  state.recompute = &recompute;
  StepContext context(state);
  int calls = 0;
  const RegionFunction square = [&](const std::vector<at::Tensor>& x) {
    ++calls;
    return std::vector<at::Tensor>{x[0] * x[1], x[1].exp()};
  };
  at::Tensor a = at::ones({3}).mul_(3).requires_grad_(true);
  at::Tensor b = at::ones({3}).mul_(2).requires_grad_(true);
  const auto out = context.region(region, square, {a, b});
  expect(out.size() == 2, "a region of two results gives another number of them");
  expect_equal("the first result", out[0].detach(), at::ones({3}).mul_(6));
  const auto gradients = torch::autograd::grad({out[0].sum() + out[1].sum()}, {a, b});
  expect_equal("the gradient of the first input", gradients[0], at::ones({3}).mul_(2));
  expect_equal("the gradient of the second input", gradients[1],
               at::ones({3}).mul_(3) + b.detach().exp());
  expect(calls >= 1 && calls <= 2, fmt::format("the function ran {} times", calls));
}

}  // namespace

void recompute_cases(const Subject& subject, Cases& cases) {
  for (const bool with_sinks : {true, false}) {
    cases.run(fmt::format("step: losses and gradients equal those without recompute, {} sinks",
                          with_sinks ? "with" : "without"),
              [&] {
                const Chain chain = small_chain();
                const StepResult expected = run_step(chain, nullptr, with_sinks);
                const auto recompute = subject.make<Recompute>();
                const StepResult found = run_step(chain, recompute.get(), with_sinks);
                expect(found.losses == expected.losses, "the losses differ");
                expect_equal_gradients(found.gradients, expected.gradients);
              });
  }
  cases.run("step: a frozen tower changes nothing about that", [&] {
    const Chain chain = small_chain({"vision"});
    const auto recompute = subject.make<Recompute>();
    expect_equal_gradients(run_step(chain, recompute.get(), true).gradients,
                           run_step(chain, nullptr, true).gradients);
  });
  cases.run("regions: each runs at most twice and gives its results and gradients", [&] {
    const auto recompute = subject.make<Recompute>();
    for (const Region region : all_regions()) check_region(*recompute, region);
  });
  cases.run("policy: the same units are run again when asked twice", [&] {
    const auto recompute = subject.make<Recompute>();
    const Chain chain = small_chain();
    for (const ChainUnit& unit : chain.units()) {
      const std::string& name = unit.unit->spec().name;
      expect(recompute->replays_unit(unit.block, name) == recompute->replays_unit(unit.block, name),
             "replays_unit() of " + unit.name + " changes its mind");
    }
  });
}

}  // namespace keyseat::conformance
