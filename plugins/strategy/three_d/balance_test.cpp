#include "plugins/strategy/three_d/balance.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "plugins/strategy/three_d/balance.cpp"

using namespace keyseat_strategy_three_d;

namespace {

double slowest(const std::vector<Load>& units, const std::vector<int>& begins) {
  double most = 0;
  for (size_t piece = 0; piece + 1 < begins.size(); ++piece) {
    double time = 0;
    for (int unit = begins[piece]; unit < begins[piece + 1]; ++unit) time += units[unit].time;
    most = std::max(most, time);
  }
  return most;
}

bool fits(const std::vector<Load>& units, const std::vector<int>& begins,
          const PieceLimits& limits) {
  for (size_t piece = 0; piece + 1 < begins.size(); ++piece) {
    double bytes = 0;
    for (int unit = begins[piece]; unit < begins[piece + 1]; ++unit) {
      bytes += units[unit].static_bytes +
               static_cast<double>(limits.open[piece]) * units[unit].open_bytes;
    }
    if (bytes > limits.bytes) return false;
  }
  return true;
}

// All ways to cut 12 units into 4.
std::vector<std::vector<int>> all_splits() {
  std::vector<std::vector<int>> splits;
  for (int a = 1; a < 12; ++a)
    for (int b = a + 1; b < 12; ++b)
      for (int c = b + 1; c < 12; ++c) splits.push_back({0, a, b, c, 12});
  return splits;
}

std::vector<Load> random_units(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Load> units(12);
  for (Load& unit : units) {
    // Some units cost nothing, one or two much.
    const auto draw = static_cast<double>(random() % 100);
    unit.time = draw < 20 ? 0 : draw < 90 ? draw : 10 * draw;
    unit.static_bytes = static_cast<double>(random() % 50);
    unit.open_bytes = static_cast<double>(random() % 10);
  }
  return units;
}

}  // namespace

TEST_CASE("three_d: no split of 12 units into 4 stages has a faster slowest stage") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<Load> units = random_units(seed);
    const PieceLimits limits{{4, 3, 2, 1}};
    double best = std::numeric_limits<double>::infinity();
    for (const auto& split : all_splits()) best = std::min(best, slowest(units, split));
    const std::vector<int> found = balance(units, limits);
    REQUIRE(found.size() == 5);
    CHECK(slowest(units, found) == doctest::Approx(best));
  }
}

TEST_CASE("three_d: stages are as fast as the memory of a rank allows") {
  int bound = 0, impossible = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<Load> units = random_units(seed);
    const PieceLimits limits{{4, 3, 2, 1}, 120};
    double best = std::numeric_limits<double>::infinity();
    for (const auto& split : all_splits()) {
      if (fits(units, split, limits)) best = std::min(best, slowest(units, split));
    }
    const std::vector<int> found = balance(units, limits);
    if (best == std::numeric_limits<double>::infinity()) {
      CHECK(found.empty());
      ++impossible;
      continue;
    }
    REQUIRE(found.size() == 5);
    CHECK(fits(units, found, limits));
    CHECK(slowest(units, found) == doctest::Approx(best));
    bound += slowest(units, found) > slowest(units, balance(units, {{4, 3, 2, 1}})) ? 1 : 0;
  }
  // The limit of this test decides something.
  CHECK(bound > 0);
  CHECK(impossible > 0);
}

TEST_CASE("three_d: equal units make equal stages, and the rest is spread") {
  const std::vector<Load> units(10, Load{1, 0, 0});
  std::vector<int> begins = balance(units, {{1, 1, 1, 1}});
  std::vector<int> sizes;
  for (size_t i = 0; i + 1 < begins.size(); ++i) sizes.push_back(begins[i + 1] - begins[i]);
  std::sort(sizes.begin(), sizes.end());
  CHECK(sizes == std::vector<int>{2, 2, 3, 3});
}
