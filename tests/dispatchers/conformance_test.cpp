// The rules that every dispatcher keeps, on 2, 4 and 8 ranks of one or several emulated nodes.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "nn/testing.h"
#include "tests/dispatchers/layer.h"

using namespace keyseat;
using namespace keyseat::test;

namespace {

struct Named {
  std::string name;
  MakeDispatcher make;
};

std::vector<Named> sending_dispatchers() {
  return {{"allgather", plugin_dispatcher("allgather")},
          {"alltoall", plugin_dispatcher("alltoall")},
          {"hybrid_ep", plugin_dispatcher("hybrid_ep")},
          {"hybrid_ep bounded", plugin_dispatcher("hybrid_ep", {{"mode", std::string("bounded")},
                                                                {"rows_factor", 4096.0}})}};
}

std::vector<DispatcherLayout> layouts() {
  return {{.name = "expert 2", .expert = 2},
          {.name = "expert 2 on 2 nodes", .expert = 2, .ranks_per_node = 1},
          {.name = "expert 4", .expert = 4},
          {.name = "expert 4 on 2 nodes", .expert = 4, .ranks_per_node = 2},
          {.name = "expert 4 on 4 nodes", .expert = 4, .ranks_per_node = 1},
          {.name = "expert 2, expert_data 2", .expert = 2, .expert_data = 2, .ranks_per_node = 2},
          {.name = "expert 8 on 2 nodes", .expert = 8, .ranks_per_node = 4}};
}

std::vector<DispatcherLayout> sliced_layouts() {
  return {{.name = "expert_tensor 2", .expert = 1, .expert_tensor = 2},
          {.name = "expert 2, expert_tensor 2", .expert = 2, .expert_tensor = 2},
          {.name = "expert 2, expert_tensor 2 on 2 nodes",
           .expert = 2,
           .expert_tensor = 2,
           .ranks_per_node = 2},
          {.name = "expert 4, expert_tensor 2 on 2 nodes",
           .expert = 4,
           .expert_tensor = 2,
           .ranks_per_node = 4}};
}

void check_all(const std::vector<DispatcherLayout>& all, int64_t experts, int64_t top_k,
               at::ScalarType dtype = at::kFloat, DispatcherLimits limits = {}) {
  for (const Named& dispatcher : sending_dispatchers()) {
    for (const DispatcherLayout& layout : all) {
      for (DispatcherCase test : dispatcher_cases(layout.world(), experts, top_k)) {
        test.dtype = dtype;
        const auto wrong = dispatcher_differences(test, layout, dispatcher.make, limits);
        CHECK_MESSAGE(wrong.empty(), dispatcher.name, ": ",
                      fmt::format("{}", fmt::join(wrong, "\n")));
      }
    }
  }
}

}  // namespace

TEST_CASE("dispatchers: outputs, gradients and bytes are those of one process, in fp32") {
  check_all(layouts(), /*experts=*/16, /*top_k=*/3);
}

TEST_CASE("dispatchers: the same with experts sliced over ranks") {
  check_all(sliced_layouts(), /*experts=*/8, /*top_k=*/2);
}

TEST_CASE("dispatchers: bf16 rows stay close to fp32, weights and their gradients are fp32") {
  check_all({layouts()[3], sliced_layouts()[1]}, 8, 3, at::kBFloat16, {.error = 2e-2});
}

TEST_CASE("dispatchers: rows that experts only copy come back bitwise, times their choices") {
  for (const Named& dispatcher : sending_dispatchers()) {
    for (const DispatcherLayout& layout : layouts()) {
      std::vector<std::string> wrong(static_cast<size_t>(layout.world()));
      ThreadWorld({.world = layout.world(), .ranks_per_node = layout.ranks_per_node})
          .run([&](int64_t rank, ThreadComm& comm) {
            const auto instance = dispatcher.make();
            const Mesh mesh = layout.mesh(rank);
            const int64_t tokens = 6 + rank;
            nn::check::CallContext context(tokens, 0, mesh, comm, *instance);
            const at::Tensor index = random_choices(tokens, 4, 16, static_cast<uint64_t>(7 + rank));
            const at::Tensor x = at::full({tokens, 5}, 0.1).add(static_cast<double>(rank));
            const at::Tensor weight = at::ones({tokens, 4});
            const auto plan = instance->plan(index, 16, *context);
            const Dispatched sent = instance->dispatch(plan, x, weight, *context);
            const at::Tensor y = instance->combine(plan, sent.rows_MH, *context);
            if (!y.equal(x.mul(4))) wrong[static_cast<size_t>(rank)] = "y is not 4 x";
          });
      for (const std::string& text : wrong) {
        CHECK_MESSAGE(text.empty(), dispatcher.name, ", ", layout.name, ": ", text);
      }
    }
  }
}

TEST_CASE("dispatchers: a rank alone needs no communicator") {
  for (const Named& dispatcher : sending_dispatchers()) {
    const auto instance = dispatcher.make();
    const auto oracle = plugin_dispatcher("local")();
    const at::Tensor index = random_choices(11, 3, 8, 5);
    at::Tensor y[2];
    int i = 0;
    for (const auto& one : {instance, oracle}) {
      nn::check::CallContext context(11, 0, Kernels::kFast, {}, one.get());
      const at::Tensor x = at::full({11, 4}, 0.3), weight = at::full({11, 3}, 0.5);
      const auto plan = one->plan(index, 8, *context);
      const Dispatched sent = one->dispatch(plan, x, weight, *context);
      y[i++] = one->combine(plan, sent.rows_MH.mul(sent.row_weight_M.unsqueeze(1)), *context);
    }
    CHECK_MESSAGE(y[0].equal(y[1]), dispatcher.name);
  }
}

TEST_CASE("dispatchers: meta tensors keep their shapes, for any layout, and nothing is sent") {
  for (const Named& dispatcher : sending_dispatchers()) {
    const auto instance = dispatcher.make();
    const DispatcherLayout layout{.name = "", .expert = 4, .ranks_per_node = 2};
    const Mesh mesh = layout.mesh(1);
    ThreadWorld({.world = 1}).run([&](int64_t, ThreadComm& comm) {
      nn::check::CallContext context(6, 0, mesh, comm, *instance);
      const auto meta = [](at::IntArrayRef shape) { return at::ones(shape, at::kMeta); };
      const at::Tensor index = meta({6, 2}).to(at::kLong);
      const auto plan = instance->plan(index, 8, *context);
      const Dispatched sent = instance->dispatch(plan, meta({6, 5}), meta({6, 2}), *context);
      CHECK(sent.rows_MH.size(0) >= 12);
      CHECK(sent.host_tokens_per_expert.size() == 2);
      CHECK((instance->combine(plan, sent.rows_MH, *context).sizes() == at::IntArrayRef{6, 5}));
      CHECK(comm.take_calls().empty());
    });
  }
}
