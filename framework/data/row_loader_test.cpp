#include "data/row_loader.h"

#include <doctest/doctest.h>

using namespace keyseat;
using namespace keyseat::data;

namespace {

// A row that tells which ids it was made of; the later ids of a step are done first.
LoadedRow labelled(const PlannedRow& samples) {
  LoadedRow loaded;
  for (const PlannedSample& sample : samples) loaded.row.facts.sample_ids.push_back(sample.id);
  std::this_thread::sleep_for(std::chrono::microseconds(200 * (5 - samples.size() % 5)));
  return loaded;
}

using RowIds = std::vector<std::vector<int64_t>>;

std::vector<PlannedRow> planned(const RowIds& ids) {
  std::vector<PlannedRow> rows;
  for (const auto& row : ids) {
    rows.emplace_back();
    for (const int64_t id : row) rows.back().push_back({id, 0});
  }
  return rows;
}

RowIds ids_of(const std::vector<LoadedRow>& rows) {
  RowIds ids;
  for (const LoadedRow& loaded : rows) ids.push_back(loaded.row.facts.sample_ids);
  return ids;
}

}  // namespace

TEST_CASE("row loader: steps and rows in order, whatever the threads do") {
  for (const int64_t threads : {0, 1, 2, 8}) {
    INFO(threads);
    RowLoader loader(labelled, threads);
    for (int64_t step = 0; step < 20; ++step)
      loader.add(planned({{step}, {step, 1}, {step, 1, 2}, {}}));
    CHECK(loader.queued() == 20);
    for (int64_t step = 0; step < 20; ++step) {
      CHECK(ids_of(loader.take()) == RowIds{{step}, {step, 1}, {step, 1, 2}, {}});
    }
    CHECK(loader.queued() == 0);
  }
}

TEST_CASE("row loader: without threads nothing is built before it is taken") {
  std::atomic<int> built{0};
  RowLoader loader(
      [&](const PlannedRow&) {
        ++built;
        return LoadedRow{};
      },
      0);
  loader.add(planned({{1}, {2}}));
  CHECK(built == 0);
  loader.take();
  CHECK(built == 2);
}

TEST_CASE("row loader: an error comes out of its own step, and of no other") {
  for (const int64_t threads : {0, 3}) {
    INFO(threads);
    RowLoader loader(
        [](const PlannedRow& samples) {
          if (samples[0].id == 11) throw std::runtime_error("row 1 of step 1");
          return labelled(samples);
        },
        threads);
    for (int64_t step = 0; step < 3; ++step)
      loader.add(planned({{10 * step}, {10 * step + 1}, {10 * step + 2}}));
    CHECK(loader.take().size() == 3);
    CHECK_THROWS_WITH(loader.take(), "row 1 of step 1");
    CHECK(loader.take().size() == 3);
  }
}

TEST_CASE("row loader: what was queued is forgotten, also while it is being built") {
  RowLoader loader(labelled, 2);
  for (int64_t step = 0; step < 10; ++step) loader.add(planned({{step}, {step}}));
  loader.clear();
  CHECK(loader.queued() == 0);
  loader.add(planned({{100}}));
  CHECK(ids_of(loader.take()) == RowIds{{100}});
}

TEST_CASE("row loader: ends while steps are still queued") {
  for (int repeat = 0; repeat < 20; ++repeat) {
    RowLoader loader(labelled, 3);
    for (int64_t step = 0; step < 10; ++step) loader.add(planned({{step}, {step}, {step}}));
  }
}
