#include "data/step_planner.h"

#include <doctest/doctest.h>

using namespace keyseat;
using namespace keyseat::data;

namespace {

PlanSettings settings(int64_t samples, int64_t global, int64_t micro, int64_t ranks = 1) {
  PlanSettings plan;
  plan.sources = {{samples, 1.0}};
  plan.seed = 11;
  plan.global_batch_size = global;
  plan.micro_batch_size = micro;
  plan.data_ranks = ranks;
  return plan;
}

PlanSettings by_tokens(int64_t samples, int64_t global, int64_t max_tokens, int64_t ranks = 1) {
  PlanSettings plan = settings(samples, global, 0, ranks);
  plan.max_tokens = max_tokens;
  return plan;
}

// Lengths from 64 to 512, the same on every machine.
std::vector<SampleSize> mixed_sizes(int64_t samples) {
  std::vector<SampleSize> sizes;
  uint32_t state = 1;
  for (int64_t i = 0; i < samples; ++i) {
    state = state * 1664525u + 1013904223u;
    sizes.push_back({64 + static_cast<int64_t>((state >> 8) % 449), 0, 0});
  }
  return sizes;
}

std::vector<int64_t> ids_of(const PlannedRow& row) {
  std::vector<int64_t> ids;
  for (const PlannedSample& sample : row) ids.push_back(sample.id);
  return ids;
}

std::vector<int64_t> sorted_ids(const PlannedStep& step) {
  std::vector<int64_t> ids;
  for (const auto& rank : step.ranks) {
    for (const auto& row : rank) {
      for (const PlannedSample& sample : row) ids.push_back(sample.id);
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

int64_t tokens_of(const PlannedRow& row, const std::vector<SampleSize>& sizes) {
  int64_t sum = 0;
  for (const PlannedSample& sample : row) sum += sizes[static_cast<size_t>(sample.id)].tokens;
  return sum;
}

}  // namespace

TEST_CASE("plan: a pure function of seed and cursor") {
  const auto sizes = mixed_sizes(50);
  const StepPlanner a(settings(50, 12, 3), sizes), b(settings(50, 12, 3), sizes);
  b.plan(600);
  for (const int64_t cursor : {0, 12, 48, 600}) {
    CHECK((a.plan(cursor).ranks == b.plan(cursor).ranks));
    CHECK(a.plan(cursor).next_cursor == cursor + 12);
  }
  PlanSettings other = settings(50, 12, 3);
  other.seed = 12;
  CHECK((StepPlanner(other, sizes).plan(0).ranks != a.plan(0).ranks));
}

TEST_CASE("plan: rows of micro_batch_size samples, balanced by cost") {
  // Four heavy samples among light ones: no row gets two of them.
  std::vector<SampleSize> sizes(16, SampleSize{10, 0, 0});
  for (const size_t heavy : {0, 1, 2, 3}) sizes[heavy].patches = 1000;
  PlanSettings plan = settings(16, 16, 4);
  plan.shuffle = false;
  const PlannedStep step = StepPlanner(plan, sizes).plan(0);
  REQUIRE(step.ranks.size() == 1);
  REQUIRE(step.ranks[0].size() == 4);
  for (const auto& row : step.ranks[0]) {
    CHECK(row.size() == 4);
    const auto ids = ids_of(row);
    CHECK(std::count_if(ids.begin(), ids.end(), [](int64_t id) { return id < 4; }) == 1);
    CHECK(std::is_sorted(ids.begin(), ids.end()));  // epoch order inside a row
  }
  // A step may cross the end of an epoch; every sample of it is there.
  CHECK(sorted_ids(StepPlanner(settings(10, 20, 5), {}).plan(0)).size() == 20);
}

TEST_CASE(
    "plan: a micro-batch has the same samples however many ranks share it, dealt out evenly") {
  const auto sizes = mixed_sizes(200);
  const PlannedStep one = StepPlanner(settings(200, 64, 16), sizes).plan(64);
  REQUIRE(one.ranks[0].size() == 4);
  for (const int64_t ranks : {2, 4, 8}) {
    CAPTURE(ranks);
    const PlannedStep step = StepPlanner(settings(200, 64, 16 / ranks, ranks), sizes).plan(64);
    for (size_t row = 0; row < 4; ++row) {
      std::vector<int64_t> ids, expected = ids_of(one.ranks[0][row]), loads;
      for (const auto& rows : step.ranks) {
        REQUIRE(rows.size() == 4);
        CHECK(rows[row].size() == static_cast<size_t>(16 / ranks));
        for (const int64_t id : ids_of(rows[row])) ids.push_back(id);
        loads.push_back(tokens_of(rows[row], sizes));
      }
      std::sort(ids.begin(), ids.end());
      std::sort(expected.begin(), expected.end());
      CHECK(ids == expected);
      const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
      CHECK(*most - *least <= 512);  // at most the longest sample
    }
  }
}

TEST_CASE("plan: without sizes every sample counts alike") {
  const PlannedStep step = StepPlanner(settings(9, 6, 2, 3), {}).plan(0);
  REQUIRE(step.ranks.size() == 3);
  for (const auto& rank : step.ranks) {
    REQUIRE(rank.size() == 1);
    CHECK(rank[0].size() == 2);
  }
}

TEST_CASE("plan: max_tokens packs whole samples, with a tail of at most 2 %") {
  const auto sizes = mixed_sizes(4096);
  for (const auto& [global, limit, ranks] :
       std::vector<std::array<int64_t, 3>>{{2048, 1024, 1}, {2048, 4096, 1}, {1024, 2048, 2}}) {
    INFO(global << " samples per step, " << limit << " tokens per row, " << ranks << " ranks");
    const StepPlanner planner(by_tokens(4096, global, limit, ranks), sizes);
    int64_t used = 0, slots = 0;
    for (int64_t cursor = 0; cursor < 8192; cursor += global) {  // two epochs
      const PlannedStep step = planner.plan(cursor);
      CHECK(sorted_ids(step).size() == static_cast<size_t>(global));
      for (const auto& rows : step.ranks) {
        CHECK(rows.size() == step.ranks[0].size());
        for (const auto& row : rows) {
          const int64_t tokens = tokens_of(row, sizes);
          CHECK(tokens <= limit);
          used += tokens;
          slots += limit;  // an empty row counts whole
        }
      }
    }
    const double tail = static_cast<double>(slots - used) / static_cast<double>(slots);
    MESSAGE("tail share " << tail);
    CHECK(tail <= 0.02);
  }
}

TEST_CASE("plan: a sample longer than max_tokens gets a row of its own") {
  std::vector<SampleSize> sizes(4, SampleSize{30, 0, 0});
  sizes[2].tokens = 500;
  PlanSettings plan = by_tokens(4, 4, 100);
  plan.shuffle = false;
  const PlannedStep step = StepPlanner(plan, sizes).plan(0);
  REQUIRE(step.ranks[0].size() == 2);
  CHECK(ids_of(step.ranks[0][0]) == std::vector<int64_t>{2});
  CHECK(ids_of(step.ranks[0][1]) == std::vector<int64_t>{0, 1, 3});
}

TEST_CASE("plan: all data ranks have the same number of rows, the last may be empty") {
  const auto sizes = mixed_sizes(64);
  for (const int64_t ranks : {1, 2, 3, 5}) {
    INFO(ranks);
    const PlannedStep step = StepPlanner(by_tokens(64, 32, 512, ranks), sizes).plan(32);
    REQUIRE(step.ranks.size() == static_cast<size_t>(ranks));
    int64_t most = 0, least = std::numeric_limits<int64_t>::max();
    for (const auto& rank : step.ranks) {
      CHECK(rank.size() == step.ranks[0].size());
      int64_t load = 0;
      for (const auto& row : rank) load += tokens_of(row, sizes);
      most = std::max(most, load);
      least = std::min(least, load);
    }
    CHECK(sorted_ids(step).size() == 32);
    CHECK(most - least <= 512);  // at most one row apart
  }
}
