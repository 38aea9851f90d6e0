#include "data/row_loader.h"

#include <doctest/doctest.h>

using namespace keyseat;
using namespace keyseat::data;

namespace {

// A row that tells which ids it was made of; the later ids of a step are done first.
Row labelled(int64_t cursor, const std::vector<int64_t>& ids) {
  Row row;
  row.facts.sample_ids = ids;
  row.facts.counts.tokens = cursor;
  std::this_thread::sleep_for(std::chrono::microseconds(200 * (5 - ids.size() % 5)));
  return row;
}

using Ids = std::vector<std::vector<int64_t>>;

Ids ids_of(const std::vector<Row>& rows) {
  Ids ids;
  for (const Row& row : rows) ids.push_back(row.facts.sample_ids);
  return ids;
}

}  // namespace

TEST_CASE("row loader: steps and rows in order, whatever the threads do") {
  for (const int64_t threads : {0, 1, 2, 8}) {
    INFO(threads);
    RowLoader loader(labelled, threads);
    for (int64_t step = 0; step < 20; ++step)
      loader.add(step, {{step}, {step, 1}, {step, 1, 2}, {}});
    CHECK(loader.queued() == 20);
    for (int64_t step = 0; step < 20; ++step) {
      const std::vector<Row> rows = loader.take();
      CHECK(ids_of(rows) == Ids{{step}, {step, 1}, {step, 1, 2}, {}});
      CHECK(rows[0].facts.counts.tokens == step);
    }
    CHECK(loader.queued() == 0);
  }
}

TEST_CASE("row loader: without threads nothing is built before it is taken") {
  std::atomic<int> built{0};
  RowLoader loader(
      [&](int64_t, const std::vector<int64_t>&) {
        ++built;
        return Row{};
      },
      0);
  loader.add(0, {{1}, {2}});
  CHECK(built == 0);
  loader.take();
  CHECK(built == 2);
}

TEST_CASE("row loader: an error comes out of its own step, and of no other") {
  for (const int64_t threads : {0, 3}) {
    INFO(threads);
    RowLoader loader(
        [](int64_t cursor, const std::vector<int64_t>& ids) {
          if (cursor == 1 && ids[0] == 1) throw std::runtime_error("row 1 of step 1");
          return labelled(cursor, ids);
        },
        threads);
    for (int64_t step = 0; step < 3; ++step) loader.add(step, {{0}, {1}, {2}});
    CHECK(loader.take().size() == 3);
    CHECK_THROWS_WITH(loader.take(), "row 1 of step 1");
    CHECK(loader.take().size() == 3);
  }
}

TEST_CASE("row loader: what was queued is forgotten, also while it is being built") {
  RowLoader loader(labelled, 2);
  for (int64_t step = 0; step < 10; ++step) loader.add(step, {{step}, {step}});
  loader.clear();
  CHECK(loader.queued() == 0);
  loader.add(100, {{100}});
  CHECK(ids_of(loader.take()) == Ids{{100}});
}

TEST_CASE("row loader: ends while steps are still queued") {
  for (int repeat = 0; repeat < 20; ++repeat) {
    RowLoader loader(labelled, 3);
    for (int64_t step = 0; step < 10; ++step) loader.add(step, {{step}, {step}, {step}});
  }
}
