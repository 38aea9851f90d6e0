#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nn/testing.h"
#include "tests/dispatchers/layer.h"

using namespace keyseat;
using namespace keyseat::test;

TEST_CASE("dispatcher/alltoall: rows of an expert lie by sender, then token") {
  const DispatcherLayout layout{.name = "", .expert = 2};
  ThreadWorld({.world = 2}).run([&](int64_t rank, ThreadComm& comm) {
    const auto dispatcher = plugin_dispatcher("alltoall")();
    const Mesh mesh = layout.mesh(rank);
    nn::check::CallContext context(2, 0, mesh, comm, *dispatcher);
    // Rank 0: token 0 to experts 3 and 0, token 1 to expert 3. Rank 1: token 0 to expert 2 and 3.
    const std::vector<int64_t> index[] = {{3, 0, 3, -1}, {2, 3, -1, -1}};
    const at::Tensor x = at::tensor({10.F, 11.F}).add(static_cast<double>(100 * rank)).view({2, 1});
    const at::Tensor weight = at::tensor({1.F, 2.F, 3.F, 0.F}).view({2, 2});
    const auto plan =
        dispatcher->plan(at::tensor(index[rank], at::kLong).view({2, 2}), 4, *context);
    const Dispatched sent = dispatcher->dispatch(plan, x, weight, *context);
    if (rank == 0) {
      CHECK(sent.rows_MH.flatten().equal(at::tensor({10.F})));
      CHECK((sent.host_tokens_per_expert == std::vector<int64_t>{1, 0}));
    } else {
      CHECK(sent.rows_MH.flatten().equal(at::tensor({110.F, 10.F, 11.F, 110.F})));
      CHECK(sent.row_weight_M.equal(at::tensor({1.F, 1.F, 3.F, 2.F})));
      CHECK((sent.host_tokens_per_expert == std::vector<int64_t>{1, 3}));
    }
    CHECK(sent.tokens_per_expert_E.equal(at::tensor(sent.host_tokens_per_expert, at::kLong)));
    const at::Tensor y = dispatcher->combine(plan, sent.rows_MH, *context);
    CHECK(y.flatten().equal(rank == 0 ? at::tensor({20.F, 11.F}) : at::tensor({220.F, 0.F})));
  });
}

TEST_CASE("dispatcher/alltoall: padded to a capacity, every block has one size and results stay") {
  for (const DispatcherLayout& layout :
       {DispatcherLayout{.name = "expert 2", .expert = 2},
        DispatcherLayout{.name = "expert 2, expert_tensor 2", .expert = 2, .expert_tensor = 2}}) {
    DispatcherCase test{.name = "padded", .experts = 4, .capacity = 5};
    for (int64_t rank = 0; rank < layout.world(); ++rank) {
      test.index.push_back(random_choices(4, 2, 4, static_cast<uint64_t>(rank)));
      test.real.push_back(4);
    }
    const auto make = plugin_dispatcher("alltoall");
    const auto wrong = dispatcher_differences(test, layout, make);
    CHECK_MESSAGE(wrong.empty(), fmt::format("{}", fmt::join(wrong, "\n")));
    ThreadWorld({.world = layout.world()}).run([&](int64_t rank, ThreadComm& comm) {
      const auto dispatcher = make();
      const Mesh mesh = layout.mesh(rank);
      nn::check::CallContext context(4, 0, mesh, comm, *dispatcher);
      const auto plan = dispatcher->plan(test.index[static_cast<size_t>(rank)], 4, *context, 5);
      const Dispatched sent =
          dispatcher->dispatch(plan, at::ones({4, 1}), at::ones({4, 2}), *context);
      const int64_t each = 5 * layout.group_size();
      CHECK((sent.host_tokens_per_expert == std::vector<int64_t>{each, each}));
    });
  }
}

TEST_CASE(
    "dispatcher/alltoall: capacities that differ between ranks, and choices above, are refused") {
  const auto run = [](int64_t own, int64_t other) {
    ThreadWorld({.world = 2}).run([&](int64_t rank, ThreadComm& comm) {
      const auto dispatcher = plugin_dispatcher("alltoall")();
      const Mesh mesh = DispatcherLayout{.name = "", .expert = 2}.mesh(rank);
      nn::check::CallContext context(3, 0, mesh, comm, *dispatcher);
      dispatcher->plan(random_choices(3, 1, 2, 1), 2, *context, rank == 0 ? own : other);
    });
  };
  CHECK_NOTHROW(run(3, 3));
  CHECK_THROWS_AS(run(3, 4), Error);
  CHECK_THROWS_AS(run(1, 1), Error);
}

TEST_CASE("dispatcher/alltoall: capabilities, and layouts that it refuses") {
  const auto dispatcher = plugin_dispatcher("alltoall")();
  const DispatcherCapabilities can = dispatcher->capabilities();
  CHECK(can.host_counts);
  CHECK(can.host_syncs == 1);
  CHECK_FALSE(can.equal_tokens);
  CHECK_FALSE(can.needs_topology);
  CHECK_FALSE(can.capture_safe);
  const Mesh mesh = DispatcherLayout{.name = "", .expert = 4}.mesh(0);
  CHECK(dispatcher->check_layout({8, 2, 16, true}, mesh).empty());
  const Problems problems = dispatcher->check_layout({6, 2, 16, false}, mesh);
  REQUIRE(problems.size() == 1);
  CHECK((problems[0].code == Code::kC4Combination));
  CHECK(problems[0].what == "the expert degree 4 does not divide the 6 experts of a layer");
}
