#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include "nn/testing.h"
#include "tests/dispatchers/layer.h"

using namespace keyseat;
using namespace keyseat::test;

TEST_CASE("dispatcher/allgather: bf16 sums travel in fp32, or in bf16 where asked to") {
  const DispatcherLayout layout{.name = "", .expert = 2};
  for (const char* type : {"fp32", "compute"}) {
    ThreadWorld({.world = 2}).run([&](int64_t rank, ThreadComm& comm) {
      const auto dispatcher =
          plugin_dispatcher("allgather", {{"combine_dtype", std::string(type)}})();
      const Mesh mesh = layout.mesh(rank);
      nn::check::CallContext context(3, 0, mesh, comm, *dispatcher);
      // Every token to both ranks.
      const at::Tensor index = at::tensor({0, 1, 1, 0, 0, 1}, at::kLong).view({3, 2});
      const auto plan = dispatcher->plan(index, 2, *context);
      const at::Tensor x = at::ones({3, 4}, at::kBFloat16);
      const Dispatched sent = dispatcher->dispatch(plan, x, at::ones({3, 2}), *context);
      comm.take_calls();
      const at::Tensor y = dispatcher->combine(plan, sent.rows_MH, *context);
      CHECK((y.scalar_type() == at::kBFloat16));
      CHECK(y.eq(2).all().item<bool>());
      CHECK(comm.take_sent().intra == 3 * 4 * (std::string(type) == "fp32" ? 4 : 2));
    });
  }
}

TEST_CASE("dispatcher/allgather: capabilities, and what it refuses") {
  const auto dispatcher = plugin_dispatcher("allgather")();
  const DispatcherCapabilities can = dispatcher->capabilities();
  CHECK(can.supports_expert_tensor);
  CHECK_FALSE(can.supports_capacity_pad);
  CHECK_FALSE(can.equal_tokens);
  const Mesh mesh = DispatcherLayout{.name = "", .expert = 2}.mesh(0);
  CHECK(dispatcher->check_layout({8, 2, 16, false}, mesh).empty());
  const Problems problems = dispatcher->check_layout({7, 2, 16, true}, mesh);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].what == "the expert degree 2 does not divide the 7 experts of a layer");
  CHECK(problems[1].what == "this dispatcher cannot pad experts to a capacity");
}
