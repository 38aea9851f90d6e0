#include "train/failure_limit.h"

#include <doctest/doctest.h>

using namespace keyseat;
using namespace keyseat::train;

namespace {

class Limited final : public Data {
 public:
  Problems open(const DataFacts&) override { return {}; }
  int64_t size() const override { return 0; }
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

RowCounts failed(int64_t count) {
  RowCounts counts;
  counts.failed = count;
  return counts;
}

}  // namespace

TEST_CASE("failure limit: reached is allowed, passed is an error that names reasons") {
  const Limited data;
  FailureLimit limit;
  limit.add(failed(2), data);
  limit.add(failed(1), data);
  limit.add(failed(0), data);
  CHECK(limit.failed() == 3);
  CHECK_THROWS_WITH_AS(limit.add(failed(1), data),
                       doctest::Contains("4 samples failed to decode, 3 are allowed"), Error);
  FailureLimit resumed;
  resumed.restore(3);
  resumed.add(failed(0), data);
  CHECK_THROWS_WITH_AS(resumed.add(failed(2), data), doctest::Contains("2 truncated: a.tar:7: cut"),
                       Error);
}
