// Regions and units that run again in backward.
#include "keyseat/memory.h"
#include "tests/executor/counting_dispatcher.h"
#include "tests/executor/poisoning_strategy.h"
#include "tests/executor/proof.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

using Names = std::vector<std::string>;

std::shared_ptr<Recompute> all_regions_again() {
  Names names;
  for (const Region region : all_regions()) names.emplace_back(region_name(region));
  return make_plugin<Recompute>("selective", {{"regions", names}});
}

std::shared_ptr<Recompute> all_units_again() {
  return make_plugin<Recompute>("full", {{"except", Names{}}});
}

struct CountedModel {
  explicit CountedModel(std::shared_ptr<Recompute> recompute)
      : model(small_blocks(), {}, [&] {
          SmallParts parts;
          parts.dispatcher = dispatcher;
          parts.recompute = std::move(recompute);
          return parts;
        }()) {}
  std::shared_ptr<CountingDispatcher> dispatcher = std::make_shared<CountingDispatcher>();
  SmallModel model;
};

// The calls of every (micro-batch, MoE layer) are `times`.
void check_calls(const CountingDispatcher::Calls& calls, int times) {
  CHECK(calls.size() == 5 * 2);  // rows x MoE layers
  for (const auto& [where, count] : calls) {
    CAPTURE(where.first);
    CAPTURE(where.second);
    CHECK(count == times);
  }
}

void check_recompute(const std::shared_ptr<Recompute>& recompute, int expected_dispatches) {
  CountedModel counted(recompute);
  const Outcome found = step(counted.model);
  check_all_trained(found);
  check_bitwise(found, oracle());
  check_calls(counted.dispatcher->plans, 1);
  check_calls(counted.dispatcher->dispatches, expected_dispatches);
  check_calls(counted.dispatcher->combines, expected_dispatches);
}

// Bytes of activations that a row keeps between its forward and its backward.
size_t kept_bytes(std::shared_ptr<Recompute> recompute) {
  SmallParts parts;
  parts.recompute = std::move(recompute);
  SmallModel model(small_blocks(), {}, std::move(parts));
  begin_step(model);
  auto store = model.executor().begin(mixed_rows(model)[4], 0, true);
  const auto activations = [] {
    return memory_statistics().categories[static_cast<size_t>(MemoryCategory::kActivations)];
  };
  const size_t before = activations();
  model.executor().forward(*store, 0, model.chain().size());
  const size_t after = activations();
  model.executor().backward(*store, 0, model.chain().size());
  REQUIRE(after > before);
  return after - before;
}

}  // namespace

TEST_CASE("proof: without recompute, plan, dispatch and combine run once") {
  check_recompute(make_plugin<Recompute>("none"), 1);
}

TEST_CASE("proof: every region run again changes no bit and plans once") {
  check_recompute(all_regions_again(), 2);
}

TEST_CASE("proof: every unit run again changes no bit and plans once") {
  check_recompute(all_units_again(), 2);
}

TEST_CASE("proof: each region on its own") {
  for (const Region region : all_regions()) {
    CAPTURE(region_name(region));
    const auto recompute =
        make_plugin<Recompute>("selective", {{"regions", Names{std::string(region_name(region))}}});
    check_recompute(recompute, region == Region::kMoe ? 2 : 1);
  }
}

TEST_CASE("proof: units and regions run again on parameters that are NaN in between") {
  for (const auto& recompute : {all_units_again(), all_regions_again()}) {
    const auto strategy = std::make_shared<PoisoningStrategy>(make_plugin<Strategy>("single"));
    SmallParts parts;
    parts.strategy = strategy;
    parts.recompute = recompute;
    SmallModel model(small_blocks(), {}, std::move(parts));
    check_bitwise(step(model), oracle());
    CHECK(strategy->all_closed());
  }
}

TEST_CASE("proof: what is run again is not kept") {
  install_caching_allocator(size_t{64} << 20);
  if (!caching_allocator_installed()) return;  // sanitizer builds have no ledger
  const size_t none = kept_bytes(make_plugin<Recompute>("none"));
  const size_t some = kept_bytes(make_plugin<Recompute>("selective"));
  const size_t regions = kept_bytes(all_regions_again());
  const size_t units = kept_bytes(all_units_again());
  INFO("bytes kept: none ", none, ", default regions ", some, ", all regions ", regions,
       ", all units ", units);
  CHECK(some < none);
  CHECK(regions < some);
  CHECK(units < regions);
  CHECK(units < none / 3);
}
