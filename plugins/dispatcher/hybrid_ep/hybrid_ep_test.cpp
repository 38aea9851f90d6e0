#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>

#include "keyseat/registry.h"
#include "nn/testing.h"
#include "tests/dispatchers/layer.h"

using namespace keyseat;
using namespace keyseat::test;

namespace {

MakeDispatcher bounded(double factor) {
  return plugin_dispatcher("hybrid_ep",
                           {{"mode", std::string("bounded")}, {"rows_factor", factor}});
}

}  // namespace

TEST_CASE("dispatcher/hybrid_ep: a token crosses to a node once, and to a rank once") {
  const DispatcherLayout layout{.name = "", .expert = 4, .ranks_per_node = 2};
  ThreadWorld({.world = 4, .ranks_per_node = 2}).run([&](int64_t rank, ThreadComm& comm) {
    const auto dispatcher = plugin_dispatcher("hybrid_ep")();
    const Mesh mesh = layout.mesh(rank);
    nn::check::CallContext context(1, 0, mesh, comm, *dispatcher);
    // Eight experts, two per rank: everything that the second node has.
    const at::Tensor index = at::tensor({4, 5, 6, 7}, at::kLong).view({1, 4});
    const auto plan = dispatcher->plan(index, 8, *context);
    comm.take_calls();
    const Dispatched sent =
        dispatcher->dispatch(plan, at::ones({1, 3}), at::ones({1, 4}), *context);
    const LinkBytes bytes = comm.take_sent();
    const int64_t row = 3 * 4;
    CHECK(bytes.inter == (rank < 2 ? row + 4 * 4 : 0));
    // What arrived in ranks 2 and 3 (of one token from each node) goes on to the other rank there.
    CHECK(bytes.intra == (rank < 2 ? 0 : 2 * (row + 4 * 2)));
    CHECK(sent.rows_MH.size(0) == (rank < 2 ? 0 : 8));
  });
}

TEST_CASE(
    "dispatcher/hybrid_ep bounded: sizes follow from T, what is above is dropped and counted") {
  const DispatcherLayout layout{.name = "", .expert = 2, .ranks_per_node = 1};
  std::atomic<int64_t> overflow = 0, choices = 0;
  std::vector<double> kept(2, 0);
  ThreadWorld({.world = 2, .ranks_per_node = 1}).run([&](int64_t rank, ThreadComm& comm) {
    const auto dispatcher = bounded(0.75)();
    const Mesh mesh = layout.mesh(rank);
    nn::check::CallContext context(8, 0, mesh, comm, *dispatcher);
    // All choices of both ranks go to the two experts of rank 1.
    const at::Tensor index = random_choices(8, 2, 2, 3).add(2);
    const auto plan = dispatcher->plan(index, 4, *context);
    const Dispatched sent =
        dispatcher->dispatch(plan, at::ones({8, 3}), at::ones({8, 2}), *context);
    CHECK(sent.rows_MH.size(0) == 12);  // 0.75 * 8 * 2, with rows or without
    const at::Tensor y = dispatcher->combine(plan, sent.rows_MH, *context);
    kept[static_cast<size_t>(rank)] = y.select(1, 0).sum().item<double>();
    const DispatcherReport report = dispatcher->take_report();
    CHECK(dispatcher->take_report().choices == 0);
    overflow += report.overflow;
    choices += report.choices;
  });
  CHECK(choices == 32);
  CHECK(overflow == 20);  // 32 arrive in rank 1, 12 fit
  CHECK(kept[0] + kept[1] == 12);
  CHECK(kept[0] == 12);  // rank 0 came first
}

TEST_CASE("dispatcher/hybrid_ep bounded: overflow changes no size and breaks no exchange") {
  const DispatcherLayout layout{.name = "2 x 2", .expert = 4, .ranks_per_node = 2};
  for (const DispatcherCase& test : dispatcher_cases(4, 8, 2)) {
    const auto wrong = dispatcher_differences(test, layout, bounded(0.3), {.results = false});
    CHECK_MESSAGE(wrong.empty(), fmt::format("{}", fmt::join(wrong, "\n")));
  }
}

TEST_CASE(
    "dispatcher/hybrid_ep: layouts that it refuses, with numbers, before anything is allocated") {
  const auto dispatcher = plugin_dispatcher("hybrid_ep")();
  const auto what = [&](const DispatcherLayout& layout, int64_t experts) {
    std::vector<std::string> texts;
    for (const Problem& problem :
         dispatcher->check_layout({experts, 2, 16, false}, layout.mesh(0))) {
      CHECK((problem.code == Code::kC4Combination));
      CHECK_FALSE(problem.remedy.empty());
      texts.push_back(problem.what);
    }
    return texts;
  };
  CHECK(what({.name = "", .expert = 4, .ranks_per_node = 2}, 8).empty());
  CHECK(what({.name = "", .expert = 2, .expert_data = 2, .ranks_per_node = 4}, 8).empty());
  CHECK(what({.name = "", .expert = 4, .expert_data = 3, .ranks_per_node = 6}, 8) ==
        std::vector<std::string>{"nodes of 6 ranks and the expert degree 4 of dispatcher/hybrid_ep "
                                 "do not divide each other"});
  CHECK(what({.name = "", .expert = 2, .expert_tensor = 4, .ranks_per_node = 2}, 8) ==
        std::vector<std::string>{"expert_tensor 4 does not divide the 2 ranks of a node"});
  CHECK(what({.name = "", .expert = 4, .ranks_per_node = 2}, 6) ==
        std::vector<std::string>{"the expert degree 4 does not divide the 6 experts of a layer"});
}

TEST_CASE("dispatcher/hybrid_ep: a factor without a bound is refused") {
  Registry registry(make_plugin_search({}));
  Problems problems;
  const auto plugin = registry.load("dispatcher", "hybrid_ep", problems);
  REQUIRE(plugin != nullptr);
  const Options options =
      resolve_options(plugin->options(), {{"rows_factor", 1.5}}, "test", problems);
  REQUIRE(problems.empty());
  const Problems refused = plugin->validate(options);
  REQUIRE(refused.size() == 1);
  CHECK((refused[0].code == Code::kC4Combination));
}
