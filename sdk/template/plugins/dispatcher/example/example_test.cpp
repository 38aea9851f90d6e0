// The plugin through the real loader. `keyseat check FILE.so` holds it against the whole contract.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/mesh.h"
#include "keyseat/registry.h"

using namespace keyseat;

namespace {

// build/bin/TEST lies beside build/plugins.
PluginSearch own_plugins() {
  const auto build = std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
  return make_plugin_search({{build / "plugins", "the test"}});
}

std::shared_ptr<Dispatcher> make(const std::string& name) {
  Registry registry(own_plugins());
  Problems problems;
  const auto plugin = registry.load("dispatcher", name, problems);
  REQUIRE_MESSAGE(plugin != nullptr, problems_text(problems));
  const Options options = resolve_options(plugin->options(), {}, "test", problems);
  REQUIRE_MESSAGE(problems.empty(), problems_text(problems));
  return registry.create<Dispatcher>(name, options);
}

// What one layer hands back whose experts change nothing.
struct Moved {
  at::Tensor rows, weights, counts, y;
};

Moved move(const std::string& name, const at::Tensor& index_TK, const at::Tensor& x_TH,
           const at::Tensor& weight_TK, int64_t experts) {
  const auto dispatcher = make(name);
  StepContext context({});
  const auto plan = dispatcher->plan(index_TK, experts, context);
  const Dispatched sent = dispatcher->dispatch(plan, x_TH, weight_TK, context);
  const int64_t rows = sent.tokens_per_expert_E.sum().item<int64_t>();
  return {sent.rows_MH.narrow(0, 0, rows), sent.row_weight_M.narrow(0, 0, rows),
          sent.tokens_per_expert_E, dispatcher->combine(plan, sent.rows_MH, context)};
}

}  // namespace

TEST_CASE("example: rows lie by expert, then by token; weights and counts with them") {
  const at::Tensor index = at::tensor({2, 0, 0, 1, -1, -1, 2, -1}, at::kLong).view({4, 2});
  const at::Tensor x = at::tensor({10, 11, 12, 13}, at::kFloat).view({4, 1});
  const at::Tensor weight = at::tensor({1, 2, 3, 4, 5, 6, 7, 8}, at::kFloat).view({4, 2});
  const Moved moved = move("example", index, x, weight, 4);
  CHECK(moved.rows.equal(at::tensor({10, 11, 11, 10, 13}, at::kFloat).view({5, 1})));
  CHECK(moved.weights.equal(at::tensor({2, 3, 4, 1, 7}, at::kFloat)));
  CHECK(moved.counts.equal(at::tensor({2, 1, 2, 0}, at::kLong)));
  CHECK(moved.y.equal(at::tensor({20, 22, 0, 13}, at::kFloat).view({4, 1})));
  // The oracle of all dispatchers, which comes with Keyseat, says the same.
  const Moved oracle = move("local", index, x, weight, 4);
  CHECK(moved.rows.equal(oracle.rows));
  CHECK(moved.y.equal(oracle.y));
}

TEST_CASE("example: no token at all is an ordinary size") {
  const Moved moved =
      move("example", at::zeros({0, 2}, at::kLong), at::zeros({0, 3}), at::zeros({0, 2}), 4);
  CHECK(moved.y.sizes() == at::IntArrayRef{0, 3});
  CHECK(moved.counts.equal(at::zeros({4}, at::kLong)));
}

TEST_CASE("example: an index that names no expert is refused") {
  StepContext context({});
  CHECK_THROWS_AS(make("example")->plan(at::tensor({4}, at::kLong).view({1, 1}), 4, context),
                  Error);
}

TEST_CASE("example: experts on several ranks are refused before anything is allocated") {
  Problems problems;
  const Mesh mesh = Mesh::build({.shard = 2, .expert = 2}, /*world=*/2, /*rank=*/0,
                                /*ranks_per_node=*/2, problems);
  REQUIRE(problems.empty());
  CHECK(make("example")->validate({.experts = 4}, mesh).size() == 1);
  CHECK(make("example")->validate({.experts = 4}, Mesh()).empty());
}
