// When and where strategy/fsdp gathers and reduces: addresses, numbers of calls, the trace.
#include <doctest/doctest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/ranks/placed_rank.h"
#include "tests/ranks/thread_comm.h"
#include "train/test_units.h"

using namespace keyseat;
using namespace keyseat::test;
using keyseat::testing::make_plugin;
using keyseat::testing::Values;
using keyseat::testing::with;

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
    const PlacedRank placed("fsdp", kStrict, facts_of(rank, 2), chain, comm);
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
    const PlacedRank placed("fsdp", with(kStrict, options), facts_of(rank, 2), chain, comm);
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
    const PlacedRank placed("fsdp", with(kStrict, {{"trace", path}, {"prefetch", prefetch}}),
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
    PlacedRank("fsdp", {{"trace", std::string("/proc/none/trace")}}, facts_of(0, 1), chain, *self);
  });
  CHECK(problem.code == Code::kR7File);
}
