#include "train/failure_limit.h"

#include <doctest/doctest.h>

using namespace keyseat;
using namespace keyseat::train;

namespace {

class Limited final : public Data {
 public:
  Problems open(const DataFacts&) override { return {}; }
  int64_t size() const override { return 6; }
  Result<Sample> sample(int64_t) override { return Problem{}; }
  Result<Sample> prompt(int64_t) override { return Problem{}; }
  std::string decode(const std::vector<int64_t>&) const override { return ""; }
  int64_t end_token_id() const override { return 0; }
  StepAssignment plan(int64_t) const override { return {}; }
  void seek(int64_t) override {}
  int64_t cursor() const override { return 0; }
  std::vector<Row> next_step() override { return {}; }
  std::map<std::string, std::pair<int64_t, std::string>> failures() const override {
    return {{"truncated", {2, "a.tar:7: cut"}}};
  }
  int64_t max_failed_samples() const override { return 3; }
};

RowCounts step(int64_t failed, int64_t samples = 1, int64_t supervised = 2) {
  RowCounts counts;
  counts.failed = failed;
  counts.samples = samples;
  counts.supervised = supervised;
  return counts;
}

}  // namespace

TEST_CASE("failure limit: reached is allowed, passed is an error that names reasons") {
  const Limited data;
  FailureLimit limit;
  limit.add(step(2), data);
  limit.add(step(1), data);
  limit.add(step(0), data);
  CHECK(limit.failed() == 3);
  CHECK_THROWS_WITH_AS(limit.add(step(1), data),
                       doctest::Contains("4 samples failed to decode, 3 are allowed"), Error);
  FailureLimit resumed;
  resumed.restore(6, 3);
  resumed.add(step(0), data);
  CHECK_THROWS_WITH_AS(resumed.add(step(2), data), doctest::Contains("2 truncated: a.tar:7: cut"),
                       Error);
}

TEST_CASE("failure limit: a source without anything to train on is an error behind one epoch") {
  const Limited data;
  FailureLimit all_failed;
  all_failed.add(step(2, 0, 0), data);
  const auto nothing = doctest::Contains(
      "none of the 6 samples can be trained on\n  2 truncated: a.tar:7: cut\n  4 unsupervised");
  CHECK_THROWS_WITH_AS(all_failed.add(step(0, 4, 0), data), nothing, Error);

  // Before that only where the run ends.
  FailureLimit short_run;
  short_run.add(step(1, 1, 0), data);
  CHECK_THROWS_WITH_AS(short_run.finish(data),
                       doctest::Contains("none of the 2 samples can be trained on"), Error);

  // One supervised token is enough, in this part of the run or before.
  FailureLimit some;
  some.add(step(1, 1, 1), data);
  some.add(step(1, 5, 0), data);
  some.finish(data);
  FailureLimit resumed;
  resumed.restore(5, 3);
  resumed.add(step(0, 3, 0), data);
  resumed.finish(data);
  FailureLimit never;
  never.finish(data);  // no step was left to do
}
