#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "keyseat/memory.h"
#include "tests/ranks/placed_rank.h"
#include "tests/ranks/thread_comm.h"
#include "tests/skip.h"
#include "train/model_fixture.h"
#include "train/test_units.h"

using namespace keyseat;
using namespace keyseat::test;
using keyseat::testing::check_problem;
using keyseat::testing::make_plugin;
using keyseat::testing::Values;
using keyseat::testing::with;

namespace {

const LayoutModel kDenseText = {.decoder = {{"num_experts", int64_t{0}}}, .text_only = true};

LayoutChoice fsdp(int64_t world, const Values& options = {}) {
  LayoutChoice choice;
  choice.world = world;
  choice.strategy = "fsdp";
  choice.strategy_options = with(kStrict, options);
  return choice;
}

void check_as_one_process(const LayoutChoice& choice, const LayoutModel& model) {
  LayoutChoice oracle;
  oracle.freeze = choice.freeze;
  const LayoutDifference difference = compare_layouts(run_layout(choice, model, mixed_step()),
                                                      run_layout(oracle, model, mixed_step()));
  INFO(difference.text());
  CHECK(difference.within_limits());
}

Problems problems_of_layout(const Values& options, int64_t world, const Chain& chain,
                            at::Device device = at::kCPU) {
  StrategyFacts facts;
  facts.world = world;
  facts.device = device;
  return make_plugin<Strategy>("fsdp", options)->validate(facts, chain);
}

}  // namespace

TEST_CASE("fsdp: a layout that does not divide is refused at its option, before the mesh") {
  const Chain chain = testing::chain_of(testing::small_blocks());
  check_problem(problems_of_layout({{"shard", int64_t{3}}}, 4, chain), Code::kC4Combination,
                "shard 3 x replicate 1 = 3, but the run has 4 ranks");
  check_problem(problems_of_layout({{"replicate", int64_t{3}}}, 4, chain), Code::kC4Combination,
                "replicate 3 does not divide the 4 ranks");
  check_problem(problems_of_layout({{"expert", int64_t{3}}}, 3, chain), Code::kC4Combination,
                "expert 3 does not divide the 4 experts");
  const Problems both = problems_of_layout({{"expert", int64_t{3}}}, 4, chain);
  CHECK(both.size() == 2);  // nor the ranks
  const Chain dense = testing::chain_of(testing::small_blocks({{"num_experts", int64_t{0}}}));
  check_problem(problems_of_layout({{"expert", int64_t{2}}}, 2, dense), Code::kC4Combination,
                "no routed experts");
  check_problem(problems_of_layout({{"offload_optimizer", true}}, 2, chain), Code::kC4Combination,
                "the device is the CPU");
  CHECK(problems_of_layout({{"offload_optimizer", true}}, 2, chain, at::kCUDA).empty());
  CHECK(problems_of_layout({{"replicate", int64_t{2}}, {"expert", int64_t{4}}}, 4, chain).empty());
  // A mesh can be built all the same, so that the mistake is reported once.
  const auto wrong = make_plugin<Strategy>("fsdp", {{"shard", int64_t{3}}});
  Problems problems;
  Mesh::build(wrong->degrees(4), 4, 0, 4, problems);
  CHECK(problems.empty());
}

TEST_CASE("fsdp: a dense model on 2 and 4 ranks trains as in one process") {
  check_as_one_process(fsdp(2), kDenseText);
  check_as_one_process(fsdp(4), kDenseText);
  check_as_one_process(fsdp(1), kDenseText);
}

TEST_CASE("fsdp: images on some ranks only, and experts sharded like the rest") {
  check_as_one_process(fsdp(2), {});
  check_as_one_process(fsdp(4), {});
}

TEST_CASE("fsdp: replicas of shards (HSDP), and replicas alone") {
  check_as_one_process(fsdp(4, {{"replicate", int64_t{2}}}), {});
  check_as_one_process(fsdp(2, {{"replicate", int64_t{2}}}), {});
}

TEST_CASE("fsdp: no way to gather or to accumulate changes the result") {
  const Values variants[] = {{{"reshard_after_forward", std::string("always")}},
                             {{"reshard_after_forward", std::string("never")}},
                             {{"prefetch", int64_t{0}}},
                             {{"prefetch", int64_t{3}}},
                             {{"prefetch", int64_t{64}}},
                             {{"min_bytes", int64_t{8000}}},
                             {{"min_bytes", int64_t{1} << 40}},
                             {{"accumulate", std::string("full")}},
                             {{"accumulate", std::string("full")}, {"min_bytes", int64_t{8000}}}};
  for (const Values& variant : variants) check_as_one_process(fsdp(2, variant), {});
}

TEST_CASE("fsdp: tied parameters are one shard, gathered by every user") {
  const LayoutModel tied = {.decoder = {{"tie_word_embeddings", true}}};
  check_as_one_process(fsdp(2), tied);
  check_as_one_process(fsdp(4, {{"replicate", int64_t{2}}}), tied);
  check_as_one_process(fsdp(2, {{"accumulate", std::string("full")}}), tied);
  check_as_one_process(fsdp(2, {{"min_bytes", int64_t{1} << 40}}), tied);
}

TEST_CASE("fsdp: frozen blocks are gathered, and only that") {
  for (const std::vector<std::string>& freeze :
       {std::vector<std::string>{"vision"}, {"vision", "projector"}, {"decoder"}}) {
    LayoutChoice choice = fsdp(2);
    choice.freeze = freeze;
    check_as_one_process(choice, {});
  }
}

TEST_CASE(
    "fsdp: initial values are those of one process; masters and states survive a round trip") {
  const Chain chain = testing::chain_of(testing::small_blocks());
  const auto single = make_plugin<Strategy>("single");
  const auto self = make_plugin<Comm>("self");
  single->place(facts_of(0, 1), chain, Mesh(), *self);
  for (const Values& layout : {Values{}, Values{{"expert", int64_t{2}}},
                               Values{{"expert", int64_t{4}}, {"replicate", int64_t{2}}}}) {
    ThreadWorld({.world = 4}).run([&](int64_t rank, ThreadComm& comm) {
      const PlacedRank placed("fsdp", layout, facts_of(rank, 4), chain, comm);
      check_round_trip(*placed.strategy, *single, chain);
    });
  }
}

TEST_CASE("fsdp: every element of every trained parameter has one optimizer shard") {
  const Chain chain =
      testing::chain_of(testing::small_blocks({{"tie_word_embeddings", true}}), {"vision"});
  std::mutex mutex;
  std::map<std::string, std::vector<int>> owners;  // by element: how many ranks
  int64_t gradients = 0;
  ThreadWorld({.world = 4}).run([&](int64_t rank, ThreadComm& comm) {
    const PlacedRank placed("fsdp", {{"expert", int64_t{2}}}, facts_of(rank, 4), chain, comm);
    const std::lock_guard<std::mutex> lock(mutex);
    for (const OptimizerShard& shard : placed.strategy->shards(2)) {
      std::vector<int>& counts = owners[shard.name];
      counts.resize(static_cast<size_t>(shard.spec->numel()));
      for (int64_t i = shard.begin; i < shard.end; ++i) ++counts[static_cast<size_t>(i)];
      CHECK(shard.master.numel() == shard.end - shard.begin);
      CHECK(shard.state.size() == 2);
    }
    for (const NormGroup& group : placed.strategy->norm_groups())
      for (const at::Tensor& gradient : group.gradients) gradients += gradient.numel();
    const MemoryEstimate estimate = placed.strategy->estimate(facts_of(rank, 4), chain, {}, 2);
    CHECK(estimate.optimizer == 2 * estimate.gradients);
  });
  int64_t elements = 0;
  for (const auto& [name, counts] : owners) {
    INFO(name);
    CHECK(std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; }));
    elements += static_cast<int64_t>(counts.size());
  }
  CHECK(elements == chain.trainable_count());
  CHECK(gradients >= elements);
  CHECK(gradients < elements * 12 / 10);  // padding
}

TEST_CASE("fsdp: every rank holds its share of parameters, gradients and optimizer state") {
  install_caching_allocator(size_t{64} << 20);
  if (!caching_allocator_installed()) KEYSEAT_SKIP("tensors bypass the ledger of memory");
  const Chain chain = testing::chain_of(testing::small_blocks({{"vocab_size", int64_t{4000}}}));
  const auto bytes_of = [](MemoryCategory category) {
    return static_cast<double>(memory_statistics().categories[static_cast<size_t>(category)]);
  };
  for (const int64_t world : {1, 2, 4}) {
    CAPTURE(world);
    const double parameters = bytes_of(MemoryCategory::kParameters),
                 gradients = bytes_of(MemoryCategory::kGradients),
                 optimizer = bytes_of(MemoryCategory::kOptimizer);
    ThreadWorld({.world = world}).run([&](int64_t rank, ThreadComm& comm) {
      const PlacedRank placed("fsdp", {{"min_bytes", int64_t{0}}}, facts_of(rank, world), chain,
                              comm);
      placed.strategy->shards(2);
      std::vector<int64_t> ranks(static_cast<size_t>(world));
      std::iota(ranks.begin(), ranks.end(), 0);
      comm.group(ranks).barrier();
      if (rank == 0) {
        const MemoryEstimate one = placed.strategy->estimate(facts_of(rank, world), chain, {}, 2);
        // One rank alone has no slots: its transient bytes are those of activations.
        const double slots =
            one.transient - placed.strategy->estimate(facts_of(0, 1), chain, {}, 2).transient;
        const auto close = [&](double measured, double of_a_rank) {
          const double expected = of_a_rank * static_cast<double>(world);
          return measured >= expected && measured <= 1.1 * expected;
        };
        CHECK(close(bytes_of(MemoryCategory::kOptimizer) - optimizer, one.optimizer));
        // With the slots in which whole values and gradients lie.
        CHECK(close(bytes_of(MemoryCategory::kParameters) - parameters +
                        bytes_of(MemoryCategory::kGradients) - gradients,
                    one.parameters + one.gradients + slots));
        CHECK(close(one.optimizer, 2.0 * 4 * chain.trainable_count() / (world * world)));
      }
      comm.group(ranks).barrier();
    });
  }
}

TEST_CASE("fsdp: what is offloaded leaves the device by its share") {
  const Chain chain = testing::chain_of(testing::small_blocks({{"vocab_size", int64_t{4000}}}));
  StrategyFacts facts = facts_of(0, 1, at::kBFloat16);
  facts.device = at::kCUDA;
  const auto estimate = [&](bool offload) {
    return make_plugin<Strategy>("fsdp", with(kStrict, {{"offload_optimizer", offload}}))
        ->estimate(facts, chain, {}, 2);
  };
  const MemoryEstimate here = estimate(false), away = estimate(true);
  CHECK(here.optimizer > 0);
  CHECK(away.optimizer == 0);
  CHECK(away.gradients == here.gradients);
  // The fp32 masters; those of parameters that are gathered in fp32 leave a copy.
  CHECK(here.parameters - away.parameters <= here.gradients);
  CHECK(here.parameters - away.parameters > 0.99 * here.gradients);
  if (!at::hasCUDA()) KEYSEAT_SKIP("no CUDA device; the estimate alone was checked");
  const auto device_bytes = [&](bool offload) {
    facts.device = at::Device(at::kCUDA, 0);
    const auto self = make_plugin<Comm>("self");
    const PlacedRank placed("fsdp", with(kStrict, {{"offload_optimizer", offload}}), facts, chain,
                            *self);
    placed.strategy->shards(2);
    return at::getDeviceAllocator(at::kCUDA)
        ->getDeviceStats(0)
        .allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
        .current;
  };
  const auto saved = static_cast<double>(device_bytes(false) - device_bytes(true));
  const double share = here.optimizer + here.parameters - away.parameters;
  CHECK(saved > 0.9 * share);
  CHECK(saved < 1.1 * share);
}

TEST_CASE("fsdp: types of gathers and reductions") {
  const auto run = [](at::ScalarType compute, const Values& options) {
    LayoutChoice choice = fsdp(2, options);
    choice.compute_dtype = compute;
    return run_layout(choice, {}, mixed_step());
  };
  const std::string bf16 = "bf16", fp32 = "fp32";
  // Rounding a gathered fp32 master gives what the rounded copy gives.
  const LayoutResult narrow = run(at::kBFloat16, {});
  CHECK(run(at::kBFloat16, {{"parameter_dtype", fp32}}).losses == narrow.losses);
  const LayoutResult wide = run(at::kFloat, {});
  const LayoutResult rounded = run(at::kFloat, {{"parameter_dtype", bf16}});
  CHECK(rounded.losses != wide.losses);
  for (const LayoutResult* result : {&narrow, &rounded})
    CHECK(compare_layouts(*result, wide).loss < 0.02);
  // Of the reduction, losses of the first step know nothing.
  const LayoutResult reduced = run(at::kFloat, {{"reduce_dtype", bf16}});
  CHECK(reduced.losses[0] == wide.losses[0]);
  const LayoutDifference difference = compare_layouts(reduced, wide);
  CHECK(difference.gradient > 1e-4);
  CHECK(difference.norm < 1e-2);
}
