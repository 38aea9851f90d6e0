#include "data/step_planner.h"

#include <doctest/doctest.h>

using namespace keyseat;
using namespace keyseat::data;

namespace {

PlanSettings settings(int64_t samples, int64_t global, int64_t micro, int64_t ranks = 1) {
  PlanSettings plan;
  plan.samples = samples;
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
    sizes.push_back({64 + static_cast<int64_t>((state >> 8) % 449), 0});
  }
  return sizes;
}

std::vector<int64_t> sorted_ids(const StepAssignment& step) {
  std::vector<int64_t> ids;
  for (const auto& rank : step.rows)
    for (const auto& row : rank) ids.insert(ids.end(), row.begin(), row.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

int64_t tokens_of(const std::vector<int64_t>& row, const std::vector<SampleSize>& sizes) {
  int64_t sum = 0;
  for (const int64_t id : row) sum += sizes[static_cast<size_t>(id)].tokens;
  return sum;
}

}  // namespace

TEST_CASE("epochs: permutations that differ, known by position alone") {
  const EpochOrder order(100, 3, true);
  std::vector<std::vector<int64_t>> epochs(3);
  for (int64_t i = 0; i < 300; ++i) epochs[static_cast<size_t>(i / 100)].push_back(order.at(i));
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
  CHECK(order.at(5) == epochs[0][5]);  // back in an earlier epoch
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    for (int64_t i = 0; i < 100; ++i) CHECK(epoch[static_cast<size_t>(i)] == i);
  }
  CHECK(EpochOrder(100, 4, true).at(0) + 100 * EpochOrder(100, 4, true).at(1) !=
        order.at(0) + 100 * order.at(1));
  const EpochOrder plain(7, 3, false);
  CHECK(plain.at(6) == 6);
  CHECK(plain.at(7) == 0);
}

TEST_CASE("plan: a pure function of seed and cursor") {
  const auto sizes = mixed_sizes(50);
  const StepPlanner a(settings(50, 12, 3), sizes), b(settings(50, 12, 3), sizes);
  b.plan(600);
  for (const int64_t cursor : {0, 12, 48, 600}) {
    CHECK(a.plan(cursor).rows == b.plan(cursor).rows);
    CHECK(a.plan(cursor).next_cursor == cursor + 12);
  }
  PlanSettings other = settings(50, 12, 3);
  other.seed = 12;
  CHECK(StepPlanner(other, sizes).plan(0).rows != a.plan(0).rows);
}

TEST_CASE("plan: rows of micro_batch_size samples, balanced by cost") {
  // Four heavy samples among light ones: no row gets two of them.
  std::vector<SampleSize> sizes(16, SampleSize{10, 0});
  for (const size_t heavy : {0, 1, 2, 3}) sizes[heavy].patches = 1000;
  PlanSettings plan = settings(16, 16, 4);
  plan.shuffle = false;
  const StepAssignment step = StepPlanner(plan, sizes).plan(0);
  REQUIRE(step.rows.size() == 1);
  REQUIRE(step.rows[0].size() == 4);
  for (const auto& row : step.rows[0]) {
    CHECK(row.size() == 4);
    CHECK(std::count_if(row.begin(), row.end(), [](int64_t id) { return id < 4; }) == 1);
    CHECK(std::is_sorted(row.begin(), row.end()));  // epoch order inside a row
  }
  // A step may cross the end of an epoch; every sample of it is there.
  CHECK(sorted_ids(StepPlanner(settings(10, 20, 5), {}).plan(0)).size() == 20);
}

TEST_CASE("plan: without sizes every sample counts alike") {
  const StepAssignment step = StepPlanner(settings(9, 6, 2, 3), {}).plan(0);
  REQUIRE(step.rows.size() == 3);
  for (const auto& rank : step.rows) {
    REQUIRE(rank.size() == 1);
    CHECK(rank[0].size() == 2);
  }
}

TEST_CASE("plan: max_tokens packs whole samples, with a tail of at most 2 %") {
  const auto sizes = mixed_sizes(4096);
  for (const int64_t limit : {1024, 4096}) {
    INFO(limit);
    const StepAssignment step = StepPlanner(by_tokens(4096, 2048, limit), sizes).plan(0);
    int64_t used = 0, slots = 0;
    for (const auto& row : step.rows[0]) {
      const int64_t tokens = tokens_of(row, sizes);
      CHECK(tokens <= limit);
      used += tokens;
      slots += limit;
    }
    CHECK(sorted_ids(step).size() == 2048);
    CHECK(static_cast<double>(slots - used) / static_cast<double>(slots) <= 0.02);
  }
}

TEST_CASE("plan: a sample longer than max_tokens gets a row of its own") {
  std::vector<SampleSize> sizes(4, SampleSize{30, 0});
  sizes[2].tokens = 500;
  PlanSettings plan = by_tokens(4, 4, 100);
  plan.shuffle = false;
  const StepAssignment step = StepPlanner(plan, sizes).plan(0);
  REQUIRE(step.rows[0].size() == 2);
  CHECK(step.rows[0][0] == std::vector<int64_t>{2});
  CHECK(step.rows[0][1] == std::vector<int64_t>{0, 1, 3});
}

TEST_CASE("plan: all data ranks have the same number of rows, the last may be empty") {
  const auto sizes = mixed_sizes(64);
  for (const int64_t ranks : {1, 2, 3, 5}) {
    INFO(ranks);
    const StepAssignment step = StepPlanner(by_tokens(64, 32, 512, ranks), sizes).plan(32);
    REQUIRE(step.rows.size() == static_cast<size_t>(ranks));
    int64_t most = 0, least = std::numeric_limits<int64_t>::max();
    for (const auto& rank : step.rows) {
      CHECK(rank.size() == step.rows[0].size());
      int64_t load = 0;
      for (const auto& row : rank) load += tokens_of(row, sizes);
      most = std::max(most, load);
      least = std::min(least, load);
    }
    CHECK(sorted_ids(step).size() == 32);
    CHECK(most - least <= 512);  // to and fro: at most one row apart
  }
}
