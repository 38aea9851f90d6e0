#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include "keyseat/interfaces/recompute.h"
#include "keyseat/registry.h"

namespace {

TEST_CASE("recompute/none: a region is one plain call, whose graph is kept") {
  keyseat::Registry registry(keyseat::make_plugin_search({}));
  const auto recompute = registry.create<keyseat::Recompute>("none", keyseat::Options());
  CHECK_FALSE(recompute->replays_unit("decoder", "layers.0"));

  int calls = 0;
  const keyseat::RegionFunction square = [&](const std::vector<at::Tensor>& inputs) {
    ++calls;
    return std::vector<at::Tensor>{inputs[0] * inputs[0]};
  };
  at::Tensor x_T = at::ones({3}).mul_(3).requires_grad_(true);
  keyseat::StepContext context({});
  const auto outputs = recompute->run(keyseat::Region::kMlp, square, {x_T}, context);
  REQUIRE(outputs.size() == 1);
  outputs[0].sum().backward();
  CHECK(calls == 1);
  CHECK(x_T.grad().equal(at::ones({3}).mul_(6)));
}

TEST_CASE("recompute/none takes no options") {
  keyseat::Registry registry(keyseat::make_plugin_search({}));
  keyseat::Problems problems;
  const auto plugin = registry.load("recompute", "none", problems);
  REQUIRE(plugin != nullptr);
  CHECK(plugin->options().empty());
  CHECK(plugin->hf_models().empty());
}

}  // namespace
