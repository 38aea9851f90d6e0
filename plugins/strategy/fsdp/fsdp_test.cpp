#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "keyseat/memory.h"
#include "tests/ranks/layout_run.h"
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

// No neighbours are merged, and what is not gathered reads NaN.
const Values kStrict = {{"min_bytes", int64_t{0}}, {"poison", true}};

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

// One rank of a world whose ranks are threads, with its own chain.
struct PlacedRank {
  PlacedRank(const Values& options, const StrategyFacts& facts, const Chain& chain, Comm& comm)
      : strategy(make_plugin<Strategy>("fsdp", options)) {
    Problems problems;
    mesh =
        Mesh::build(strategy->degrees(facts.world), facts.world, facts.rank, facts.world, problems);
    REQUIRE(problems_text(problems) == "");
    strategy->place(facts, chain, mesh, comm);
  }
  std::shared_ptr<Strategy> strategy;
  Mesh mesh;
};

StrategyFacts facts_of(int64_t rank, int64_t world, at::ScalarType compute = at::kFloat) {
  StrategyFacts facts;
  facts.rank = rank;
  facts.world = facts.ranks_per_node = world;
  facts.seed = 3;
  facts.compute_dtype = compute;
  return facts;
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
      const PlacedRank placed(layout, facts_of(rank, 4), chain, comm);
      placed.strategy->shards(2);
      for (int unit = 0; unit < chain.size(); ++unit) {
        for (int param = 0; param < static_cast<int>(chain.units()[unit].param_names.size());
             ++param) {
          INFO(chain.units()[unit].param_names[param]);
          const at::Tensor expected = single->read_master(unit, param);
          CHECK(at::equal(placed.strategy->read_master(unit, param), expected));
          const at::Tensor other = expected.add(0.25);
          placed.strategy->write_master(unit, param, other);
          CHECK(at::equal(placed.strategy->read_master(unit, param), other));
          placed.strategy->write_state(unit, param, 1, other);
          CHECK(at::equal(placed.strategy->read_state(unit, param, 1), other));
          CHECK(placed.strategy->read_state(unit, param, 0).abs().max().item<float>() == 0);
        }
      }
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
    const PlacedRank placed({{"expert", int64_t{2}}}, facts_of(rank, 4), chain, comm);
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

namespace {

// A chain of equal units that notes where its parameters lie. One per rank: units note from the
// rank's thread.
struct NotedUnits {
  static constexpr int kUnits = 4;
  struct Seen {
    std::vector<const void*> addresses;
    std::vector<int64_t> versions;
    ParamHandle handle;
  };
  std::array<Seen, kUnits> seen;
  int released_but_readable = 0;

  std::vector<NamedBlock> blocks() {
    using testing::spec;
    const Dim P = DimSymbol::kP, H = testing::kHidden;
    std::vector<testing::FunctionBlock::Part> parts;
    for (int i = 0; i < kUnits; ++i) {
      const bool first = i == 0, last = i == kUnits - 1;
      const TensorSpec read =
          first ? spec("patches", {P, Dim(testing::kPatch)}, at::kFloat) : spec("hidden", {P, H});
      const TensorSpec write =
          last ? spec("loss.ce", {Dim(1)}, at::kFloat, "one") : spec("hidden", {P, H});
      const int64_t in = first ? testing::kPatch : testing::kHidden;
      parts.push_back(
          {testing::unit_spec("u" + std::to_string(i),
                              {testing::param("w", {testing::kHidden, in})}, {read}, {write}),
           [this, i, last, read](const Params& params, const Tensors& inputs,
                                 StepContext&) -> Tensors {
             note(i, params.at("w"));
             const at::Tensor y_PH = testing::linear(inputs.at(read.name), params.at("w"));
             if (!last) return Tensors{{"hidden", y_PH}};
             return Tensors{{"loss.ce", y_PH.sum().reshape({1})}};
           }});
    }
    return {testing::block("b", std::move(parts))};
  }

  void note(int i, const ParamHandle& weight) {
    seen[static_cast<size_t>(i)].addresses.push_back(weight.value().const_data_ptr());
    seen[static_cast<size_t>(i)].versions.push_back(
        static_cast<int64_t>(weight.value()._version()));
    seen[static_cast<size_t>(i)].handle = weight;
    if (i == 0) return;
    const at::Tensor before = seen[static_cast<size_t>(i) - 1].handle.value().detach();
    released_but_readable += before.isfinite().any().item<bool>() ? 1 : 0;
  }
};

void run_steps(Strategy& strategy, const Chain& chain, const Mesh& mesh, Comm& comm,
               const std::vector<std::vector<Row>>& steps) {
  ExecutorServices services;
  services.comm = &comm;
  services.mesh = &mesh;
  services.events = &strategy;
  Executor executor(chain, services);
  for (size_t step = 0; step < steps.size(); ++step) {
    executor.begin_step(static_cast<int64_t>(step), {{"ce", {1, 1}}});
    strategy.schedule({static_cast<int64_t>(step), steps[step], true, {}}, executor);
    strategy.finish();
    strategy.after_update();
  }
}

}  // namespace

TEST_CASE("fsdp: gathered values keep their address and version; released ones read NaN") {
  const auto rows = [](uint64_t seed) {
    return std::vector<Row>{testing::make_row(2, 3, seed), testing::make_row(2, 1, seed + 1)};
  };
  const std::vector<std::vector<Row>> steps{rows(1), rows(5)};
  const std::vector<std::vector<Row>> empty{
      {testing::make_row(0, 0, 1), testing::make_row(0, 0, 2)},
      {testing::make_row(0, 0, 3), testing::make_row(0, 0, 4)}};
  std::array<NotedUnits, 2> noted;
  std::array<std::vector<RecordedCall>, 2> calls;
  ThreadWorld({.world = 2}).run([&](int64_t rank, ThreadComm& comm) {
    NotedUnits& units = noted[static_cast<size_t>(rank)];
    const Chain chain = testing::chain_of(units.blocks());
    const PlacedRank placed(kStrict, facts_of(rank, 2), chain, comm);
    run_steps(*placed.strategy, chain, placed.mesh, comm, rank == 0 ? steps : empty);
    calls[static_cast<size_t>(rank)] = comm.take_calls();
  });
  for (const NotedUnits& units : noted) {
    CHECK(units.released_but_readable == 0);
    std::set<const void*> addresses;
    for (size_t i = 0; i < units.seen.size(); ++i) {
      const NotedUnits::Seen& seen = units.seen[i];
      REQUIRE(seen.addresses.size() == 4);  // two steps of two rows
      for (const void* address : seen.addresses) CHECK(address == seen.addresses[0]);
      for (int64_t version : seen.versions) CHECK(version == seen.versions[0]);
      CHECK(seen.addresses[0] == units.seen[i % 2].addresses[0]);  // two slots
      addresses.insert(seen.addresses[0]);
    }
    CHECK(addresses.size() == 2);
  }
  // Rows do not change what is communicated: every unit is gathered forward, all but the last again
  // backward, the first not again for the second row; and every gradient is reduced.
  std::map<std::string, int> count;
  for (const RecordedCall& call : calls[0]) ++count[call.kind];
  CHECK(count["all_gather"] == 2 * (2 * (4 + 3) - 1));
  CHECK(count["reduce_scatter"] == 4 * 4);
  REQUIRE(calls[0].size() == calls[1].size());
  for (size_t i = 0; i < calls[0].size(); ++i) CHECK(calls[0][i].kind == calls[1][i].kind);
}

namespace {

// What options make of a step of two rows over four equal units, on one of two ranks.
struct StepCalls {
  std::map<std::string, int> count;  // by kind of call
  std::set<const void*> addresses;   // where parameters were gathered
};

StepCalls calls_of_step(const Values& options) {
  const std::vector<std::vector<Row>> steps{
      {testing::make_row(2, 3, 1), testing::make_row(2, 1, 2)}};
  std::array<NotedUnits, 2> noted;
  StepCalls result;
  ThreadWorld({.world = 2}).run([&](int64_t rank, ThreadComm& comm) {
    NotedUnits& units = noted[static_cast<size_t>(rank)];
    const Chain chain = testing::chain_of(units.blocks());
    const PlacedRank placed(with(kStrict, options), facts_of(rank, 2), chain, comm);
    comm.take_calls();
    run_steps(*placed.strategy, chain, placed.mesh, comm, steps);
    if (rank != 0) return;
    for (const RecordedCall& call : comm.take_calls()) {
      ++result.count[call.kind];
      // Gathers of parameters have connections of their own.
      const bool gathers = call.kind == "all_gather";
      CHECK((call.channel == CommChannel::kParameters) == gathers);
    }
    for (const NotedUnits::Seen& seen : units.seen)
      result.addresses.insert(seen.addresses.begin(), seen.addresses.end());
  });
  return result;
}

int gathers(const Values& options) { return calls_of_step(options).count["all_gather"]; }
int reductions(const Values& options) { return calls_of_step(options).count["reduce_scatter"]; }

}  // namespace

TEST_CASE("fsdp: what is gathered and reduced how often follows from the options") {
  const auto reshard = [](const char* when) {
    return Values{{"reshard_after_forward", std::string(when)}};
  };
  // Per row four forward and four backward; auto: neither the last unit's backward nor the first
  // unit's next forward gathers again.
  CHECK(gathers(reshard("always")) == 2 * 8);
  CHECK(gathers(reshard("auto")) == 2 * 7 - 1);
  CHECK(gathers(reshard("never")) == 4);
  CHECK(gathers({}) == gathers(reshard("auto")));

  CHECK(reductions({{"accumulate", std::string("sharded")}}) == 2 * 4);
  CHECK(reductions({{"accumulate", std::string("full")}}) == 4);
  CHECK(reductions({}) == 2 * 4);

  // Each unit has 8 x 8 (the first 8 x 6) fp32 values: two reach 300 bytes.
  CHECK(reductions({{"min_bytes", int64_t{300}}}) == 2 * 2);
  CHECK(gathers({{"min_bytes", int64_t{1} << 40}}) == 1);

  for (const int64_t prefetch : {0, 1, 2, 3, 64}) {
    const StepCalls calls = calls_of_step({{"prefetch", prefetch}});
    CHECK(static_cast<int64_t>(calls.addresses.size()) == std::min<int64_t>(prefetch + 1, 4));
  }
}

namespace {

// How many units were computed while the gather of the next one was on its way, and how many had to
// be.
struct Overlap {
  int overlapped = 0, expected = 0;
  int in_first = 0;  // gathers begun before the first unit was computed, its own included
};

Overlap overlap_in(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  REQUIRE(std::getline(file, line));
  struct Span {
    std::string unit;
    double begin = 0, end = 0;
  };
  std::vector<Span> spans;
  std::map<std::string, std::vector<double>> gathers;  // unit -> begins
  while (std::getline(file, line)) {
    const auto event = nlohmann::json::parse(line.substr(0, line.size() - 1));
    const std::string name = event.at("name"), phase = event.at("ph"), lane = event.at("cat");
    const double time = event.at("ts");
    const std::string unit = name.substr(0, name.find(' '));
    if (lane == "gather" && phase == "b") gathers[unit].push_back(time);
    if (lane != "compute") continue;
    if (phase == "B") spans.push_back({unit, time, 0});
    if (phase == "E") spans.back().end = time;
  }
  Overlap overlap;
  for (size_t i = 0; i + 1 < spans.size(); ++i) {
    if (spans[i].unit == spans[i + 1].unit) continue;  // the last unit stays gathered
    double begun = std::numeric_limits<double>::infinity();
    for (double time : gathers[spans[i + 1].unit]) {
      if (time < spans[i + 1].begin) begun = time;
    }
    ++overlap.expected;
    overlap.overlapped += begun < spans[i].end ? 1 : 0;
  }
  for (const auto& [unit, times] : gathers) overlap.in_first += times[0] < spans[0].end ? 1 : 0;
  return overlap;
}

Overlap traced_overlap(int64_t prefetch) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("keyseat_fsdp_trace_{}", getpid()))
          .string();
  const std::vector<std::vector<Row>> steps{{testing::make_row(2, 3, 1)}};
  std::array<NotedUnits, 2> noted;
  ThreadWorld({.world = 2}).run([&](int64_t rank, ThreadComm& comm) {
    const Chain chain = testing::chain_of(noted[static_cast<size_t>(rank)].blocks());
    const PlacedRank placed(with(kStrict, {{"trace", path}, {"prefetch", prefetch}}),
                            facts_of(rank, 2), chain, comm);
    run_steps(*placed.strategy, chain, placed.mesh, comm, steps);
  });
  const Overlap overlap = overlap_in(path + ".1.json");
  for (const char* rank : {".0.json", ".1.json"}) std::filesystem::remove(path + rank);
  return overlap;
}

}  // namespace

TEST_CASE("fsdp: the trace shows the next gather begun before a unit's computation ended") {
  const Overlap ahead = traced_overlap(1);
  CHECK(ahead.expected == 6);  // three steps forward, three back
  CHECK(ahead.overlapped == ahead.expected);
  CHECK(traced_overlap(0).overlapped == 0);  // the check itself can fail
  for (const int prefetch : {0, 1, 2, 3}) CHECK(traced_overlap(prefetch).in_first == prefetch + 1);
}

TEST_CASE("fsdp: a trace that cannot be written stops the run") {
  NotedUnits units;
  const Chain chain = testing::chain_of(units.blocks());
  const auto self = make_plugin<Comm>("self");
  const Problem problem = testing::problem_thrown([&] {
    PlacedRank({{"trace", std::string("/proc/none/trace")}}, facts_of(0, 1), chain, *self);
  });
  CHECK(problem.code == Code::kR7File);
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
      const PlacedRank placed({{"min_bytes", int64_t{0}}}, facts_of(rank, world), chain, comm);
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
    const PlacedRank placed(with(kStrict, {{"offload_optimizer", offload}}), facts, chain, *self);
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
