#include "data/sample_order.h"

#include <doctest/doctest.h>

#include "keyseat/status.h"

using namespace keyseat;
using namespace keyseat::data;

namespace {

// How many of the first samples come from each source.
std::vector<int64_t> counts_of(const SampleOrder& order, const std::vector<SourceShare>& sources,
                               int64_t begin, int64_t end) {
  std::vector<int64_t> counts(sources.size());
  for (int64_t position = begin; position < end; ++position) {
    int64_t id = order.at(position).id;
    size_t source = 0;
    while (id >= sources[source].samples) id -= sources[source++].samples;
    ++counts[source];
  }
  return counts;
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

TEST_CASE("mixture: sources come in the proportion of their weights, at every place") {
  const std::vector<SourceShare> sources = {{1000, 5}, {10, 3}, {400, 2}};
  const SampleOrder order(sources, 7, true);
  for (const int64_t begin : {0, 1000, 65530, 1'000'000}) {
    INFO(begin);
    const auto counts = counts_of(order, sources, begin, begin + 100);
    CHECK(std::abs(counts[0] - 50) <= 1);
    CHECK(std::abs(counts[1] - 30) <= 1);
    CHECK(std::abs(counts[2] - 20) <= 1);
  }
  // A light source is not forgotten.
  const std::vector<SourceShare> light = {{100, 1e6}, {100, 1e-6}};
  CHECK(counts_of(SampleOrder(light, 7, true), light, 0, 1 << 16)[1] == 1);
}

TEST_CASE("mixture: every source has epochs of its own") {
  const std::vector<SourceShare> sources = {{50, 1}, {20, 1}};
  const SampleOrder order(sources, 7, true);
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> passes;  // source, pass -> ids
  for (int64_t position = 0; position < 200; ++position) {
    const PlannedSample sample = order.at(position);
    passes[{sample.id < 50 ? 0 : 1, sample.pass}].push_back(sample.id);
  }
  CHECK(passes.size() == 2 + 5);
  for (auto& [which, ids] : passes) {
    CHECK(ids.size() == (which.first == 0 ? 50 : 20));
    if (which.second > 0) CHECK(ids != passes[{which.first, which.second - 1}]);
  }
  for (auto& [which, ids] : passes) {
    std::sort(ids.begin(), ids.end());
    for (size_t i = 0; i < ids.size(); ++i)
      CHECK(ids[i] == static_cast<int64_t>(i) + (which.first == 0 ? 0 : 50));
  }
}

TEST_CASE("mixture: a pure function of seed and position") {
  const std::vector<SourceShare> sources = {{30, 2}, {30, 1}, {30, 1}};
  const SampleOrder once(sources, 7, true), again(sources, 7, true), other(sources, 8, true);
  std::vector<PlannedSample> forward, backward, different;
  for (int64_t i = 0; i < 300; ++i) {
    forward.push_back(once.at(i));
    backward.push_back(again.at(299 - i));
    different.push_back(other.at(i));
  }
  std::reverse(backward.begin(), backward.end());
  CHECK((forward == backward));
  CHECK((forward != different));
  // Two sources of one size and weight are not in step.
  std::vector<int64_t> second, third;
  for (const PlannedSample& sample : forward) {
    if (sample.id >= 60) third.push_back(sample.id - 60);
    if (sample.id >= 30 && sample.id < 60) second.push_back(sample.id - 30);
  }
  CHECK(second != third);
}

TEST_CASE("mixture: a source without samples or weight is refused") {
  CHECK_THROWS_WITH_AS(SampleOrder({{3, 1}, {0, 1}}, 1, true),
                       doctest::Contains("source 2 holds no samples"), Error);
  CHECK_THROWS_WITH_AS(SampleOrder({{3, 1}, {3, 0}}, 1, true), doctest::Contains("weight 0"),
                       Error);
}
