// Faults that implementations of expert parallelism are known for, each in the smallest layout that
// shows it, with the change of our code that brings it back. The number is that of the list in
// README.md of this folder.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "keyseat/memory.h"
#include "nn/router_limits.h"
#include "nn/testing.h"
#include "tests/dispatchers/layer.h"
#include "tests/dispatchers/mutants.h"
#include "tests/dispatchers/wrapped_dispatcher.h"
#include "tests/mutation.h"

using namespace keyseat;
using namespace keyseat::test;

namespace {

using Options_ = std::map<std::string, OptionValue>;
// The second argument is how long a rank waits for the others, in seconds.
using Check = std::function<std::vector<std::string>(const MakeDispatcher&, double)>;

// A right dispatcher on a busy machine needs time; a wrong one that hangs is to be found out soon.
constexpr double kPatient = 60, kImpatient = 1;

// The plugin passes, its copy in this executable passes, and the mutated copy is found out.
void check_bug_class(const std::string& plugin, const Options_& options,
                     const std::string& mutation, const Check& check) {
  for (const MakeDispatcher& make :
       {plugin_dispatcher(plugin, options), mutant_dispatcher(plugin, options)}) {
    const auto wrong = check(make, kPatient);
    CHECK_MESSAGE(wrong.empty(), fmt::format("{}", fmt::join(wrong, "\n")));
  }
  const Mutation wrong_on_purpose(mutation);
  CHECK_MESSAGE(!check(mutant_dispatcher(plugin, options), kImpatient).empty(), "the mutant \"",
                mutation, "\" was not noticed");
}

std::vector<std::string> all_cases(const DispatcherLayout& layout, const MakeDispatcher& make,
                                   int64_t experts, int64_t top_k, double timeout_seconds) {
  std::vector<std::string> wrong;
  for (const DispatcherCase& test : dispatcher_cases(layout.world(), experts, top_k)) {
    const auto found = dispatcher_differences(
        test, layout, make, {.traffic = false, .timeout_seconds = timeout_seconds});
    wrong.insert(wrong.end(), found.begin(), found.end());
  }
  return wrong;
}

DispatcherCase uneven(const std::vector<int64_t>& tokens, int64_t experts, int64_t top_k) {
  DispatcherCase test{.name = "uneven", .experts = experts};
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    test.index.push_back(random_choices(tokens[rank], top_k, experts, 40 + rank));
    test.real.push_back(tokens[rank]);
  }
  return test;
}

const Options_ kBounded{{"mode", std::string("bounded")}, {"rows_factor", 4096.0}};

}  // namespace

TEST_CASE("bug class 11: ranks and experts without rows take part in every exchange") {
  check_bug_class(
      "hybrid_ep", {}, "no exchange of zero rows", [](const MakeDispatcher& make, double seconds) {
        return all_cases({.name = "2 x 2", .expert = 4, .ranks_per_node = 2}, make, 8, 2, seconds);
      });
}

TEST_CASE("bug class 12: rows past the used ones are never read, in either direction") {
  check_bug_class(
      "hybrid_ep", kBounded, "tail rows count", [](const MakeDispatcher& make, double seconds) {
        return all_cases({.name = "2 x 1", .expert = 2, .ranks_per_node = 1}, make, 8, 2, seconds);
      });
}

TEST_CASE("bug class 13: the gradient of the routing weights is summed over the slices") {
  check_bug_class("hybrid_ep", {}, "one slice is enough",
                  [](const MakeDispatcher& make, double seconds) {
                    return all_cases({.name = "expert_tensor 2", .expert = 2, .expert_tensor = 2},
                                     make, 8, 2, seconds);
                  });
}

TEST_CASE("bug class 14: the second sort uses the counts of every sender") {
  check_bug_class("alltoall", {}, "no second sort", [](const MakeDispatcher& make, double seconds) {
    const DispatcherLayout layout{.name = "2 experts each", .expert = 2, .expert_tensor = 2};
    return dispatcher_differences(uneven({3, 8, 1, 6}, 4, 2), layout, make,
                                  {.timeout_seconds = seconds});
  });
}

TEST_CASE("bug class 15: rows of a rank keep their place behind those of ranks with another T") {
  check_bug_class("allgather", {}, "every rank has my T",
                  [](const MakeDispatcher& make, double seconds) {
                    return dispatcher_differences(uneven({3, 8}, 4, 2), {.name = "expert 2"}, make,
                                                  {.timeout_seconds = seconds});
                  });
}

TEST_CASE("bug class 16: a capacity above the number of tokens drops nothing") {
  // ceil(4 tokens * 2 choices / 2 experts * 8)
  const int64_t capacity = nn::expert_capacity({.top_k = 2, .capacity_factor = 8}, 4, 2);
  CHECK(capacity == 32);
  const at::Tensor index = random_choices(4, 2, 2, 1), weight = at::full({4, 2}, 0.5);
  for (const nn::DropPolicy policy : {nn::DropPolicy::kProbability, nn::DropPolicy::kPosition}) {
    CHECK(nn::drop_above_capacity(index, weight, 2, capacity, policy).equal(index));
    const Mutation wrong_on_purpose("capacity is at most T");
    CHECK_THROWS_AS(nn::drop_above_capacity(index, weight, 2, capacity, policy), std::out_of_range);
  }
  // Nor do blocks that are filled up to it lose a row.
  DispatcherCase padded = uneven({4, 4}, 2, 2);
  padded.capacity = capacity;
  CHECK(
      dispatcher_differences(padded, {.name = "expert 2"}, plugin_dispatcher("alltoall")).empty());
}

TEST_CASE("bug class 17: padding is not dispatched, counted or trained on") {
  check_bug_class("hybrid_ep", {}, "padding is routed",
                  [](const MakeDispatcher& make, double seconds) {
                    return all_cases({.name = "expert 2", .expert = 2}, make, 8, 2, seconds);
                  });
}

TEST_CASE("bug class 18: unequal T is padded, or refused on every rank") {
  const DispatcherCase test = uneven({5, 7}, 8, 3);
  const DispatcherLayout layout{.name = "2 x 1", .expert = 2, .ranks_per_node = 1};
  check_bug_class("hybrid_ep", {}, "no agreement on T",
                  [&](const MakeDispatcher& make, double seconds) {
                    return dispatcher_differences(test, layout, make, {.timeout_seconds = seconds});
                  });
  const auto refusing = plugin_dispatcher("hybrid_ep", {{"unequal_tokens", std::string("refuse")}});
  CHECK(refusing()->capabilities().equal_tokens);
  const auto wrong = dispatcher_differences(test, layout, refusing);
  REQUIRE(wrong.size() == 1);
  CHECK(wrong[0].find("the ranks have between 5 and 7 row slots") != std::string::npos);
  CHECK(dispatcher_differences(uneven({6, 6}, 8, 3), layout, refusing).empty());
}

namespace {

// Keeps every plan it made: what the next test is there to find.
class Keeping final : public WrappedDispatcher {
 public:
  using WrappedDispatcher::WrappedDispatcher;

 private:
  std::shared_ptr<DispatchPlan> plan_(const at::Tensor& index, int64_t experts,
                                      StepContext& context) override {
    plans_.push_back(WrappedDispatcher::plan_(index, experts, context));
    return plans_.back();
  }
  std::vector<std::shared_ptr<DispatchPlan>> plans_;
};

struct Left {
  int64_t plans = 0;  // alive after 200 steps, on all ranks together
  int64_t bytes = 0;  // of tensors, more than after 50 steps
};

Left left_after_steps(const MakeDispatcher& make) {
  install_caching_allocator(size_t{64} << 20);
  const DispatcherLayout layout{.name = "", .expert = 2, .ranks_per_node = 1};
  std::atomic<int64_t> left = 0;
  int64_t bytes = 0;
  ThreadWorld({.world = 2, .ranks_per_node = 1}).run([&](int64_t rank, ThreadComm& comm) {
    const Mesh mesh = layout.mesh(rank);
    const auto dispatcher = make();
    std::vector<std::weak_ptr<DispatchPlan>> plans;
    const auto add_bytes = [&](int64_t sign) {
      comm.group({0, 1}).barrier();
      if (rank == 0) bytes += sign * static_cast<int64_t>(memory_statistics().in_use);
      comm.group({0, 1}).barrier();
    };
    for (uint64_t step = 0; step < 200; ++step) {
      if (step == 50) add_bytes(-1);
      nn::check::CallContext context(4, 0, mesh, comm, *dispatcher);
      const at::Tensor x = at::full({4, 3}, 0.5).requires_grad_();
      const at::Tensor weight = at::full({4, 2}, 0.5).requires_grad_();
      const auto plan = dispatcher->plan(random_choices(4, 2, 4, step), 4, *context);
      plans.push_back(plan);
      const Dispatched sent = dispatcher->dispatch(plan, x, weight, *context);
      dispatcher->combine(plan, sent.rows_MH * sent.row_weight_M.unsqueeze(1), *context)
          .sum()
          .backward();
      comm.take_calls();
    }
    add_bytes(1);
    for (const auto& plan : plans) left += plan.expired() ? 0 : 1;
  });
  return {left, bytes};
}

}  // namespace

TEST_CASE("bug class 19: nothing of a plan is left after its backward, over 200 steps") {
  for (const char* name : {"allgather", "alltoall", "hybrid_ep"}) {
    const Left left = left_after_steps(plugin_dispatcher(name));
    CHECK(left.plans == 0);
    CHECK(left.bytes == 0);
  }
  const Left left = left_after_steps(
      [make = plugin_dispatcher("alltoall")] { return std::make_shared<Keeping>(make()); });
  CHECK(left.plans == 400);
  // The address sanitizer's builds have no ledger.
  if (caching_allocator_installed()) CHECK(left.bytes > 0);
}
