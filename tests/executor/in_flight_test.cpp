// Several micro-batches in flight.
#include "tests/executor/poisoning_strategy.h"
#include "tests/executor/proof.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

// Runs ranges of units of several rows; keeps the stores.
class Rows {
 public:
  explicit Rows(SmallModel& model) : model_(model) {
    begin_step(model);
    for (Row& row : mixed_rows(model)) {
      const auto micro_batch = static_cast<int64_t>(stores_.size());
      lengths.insert(row.facts.row_tokens());
      stores_.push_back(model.executor().begin(std::move(row), micro_batch, true));
    }
  }
  int size() const { return static_cast<int>(stores_.size()); }
  void forward(int row, int first, int last) {
    started_.insert(row);
    most_in_flight = std::max(most_in_flight, static_cast<int>(started_.size()));
    model_.executor().forward(*stores_[row], first, last);
  }
  void backward(int row, int first, int last) {
    model_.executor().backward(*stores_[row], first, last);
    if (first == 0) started_.erase(row);
  }
  std::set<int64_t> lengths;
  int most_in_flight = 0;

 private:
  SmallModel& model_;
  std::vector<std::unique_ptr<Store>> stores_;
  std::set<int> started_;
};

// The first of three stages: two forwards to warm up, then one forward, one backward.
void one_forward_one_backward(Rows& rows, int first, int last) {
  constexpr int kWarmUp = 2;
  for (int row = 0; row < kWarmUp; ++row) rows.forward(row, first, last);
  for (int row = kWarmUp; row < rows.size(); ++row) {
    rows.forward(row, first, last);
    rows.backward(row - kWarmUp, first, last);
  }
  for (int row = rows.size() - kWarmUp; row < rows.size(); ++row) rows.backward(row, first, last);
}

}  // namespace

TEST_CASE("proof: three rows in flight in 1F1B order, of different lengths, text-only and empty") {
  SmallModel model(small_blocks());
  Rows rows(model);
  REQUIRE(rows.size() == 5);
  CHECK(rows.lengths.size() == 5);
  CHECK(rows.lengths.contains(0));
  one_forward_one_backward(rows, 0, model.chain().size());
  CHECK(rows.most_in_flight == 3);
  const Outcome found = outcome_of(model);
  check_all_trained(found);
  check_bitwise(found, oracle());
}

TEST_CASE("proof: rows in flight stand at different units, between them parameters are NaN") {
  const auto strategy = std::make_shared<PoisoningStrategy>(make_plugin<Strategy>("single"));
  SmallParts parts;
  parts.strategy = strategy;
  SmallModel model(small_blocks(), {}, std::move(parts));
  Rows rows(model);
  const int units = model.chain().size();
  // Diagonals: row r runs unit d - r forward; backward likewise from the end. Gradients of a unit
  // then add up in the order of the rows.
  for (int diagonal = 0; diagonal < units + rows.size(); ++diagonal) {
    for (int row = 0; row < rows.size(); ++row) {
      const int unit = diagonal - row;
      if (unit >= 0 && unit < units) rows.forward(row, unit, unit + 1);
    }
  }
  for (int diagonal = 0; diagonal < units + rows.size(); ++diagonal) {
    for (int row = 0; row < rows.size(); ++row) {
      const int unit = units - 1 - (diagonal - row);
      if (unit >= 0 && unit < units) rows.backward(row, unit, unit + 1);
    }
  }
  CHECK(rows.most_in_flight == 5);
  strategy->close_all();
  CHECK(strategy->all_closed());
  Outcome found = outcome_of(model);
  const Outcome expected = oracle();
  // Statistics and losses are summed in the order of the calls, which is that of the rows here.
  check_bitwise(found, expected);
}
