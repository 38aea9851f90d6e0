// One recorded batch as a data source: every step trains on the same packed row.
#pragma once

#include "keyseat/interfaces/data.h"

namespace keyseat::tool::bench {

class RecordedRows final : public Data {
 public:
  explicit RecordedRows(Row row) : row_(std::move(row)) {}

  Problems open(const DataFacts&) override { return {}; }
  int64_t size() const override { return row_.facts.counts.samples; }
  StepAssignment plan(int64_t cursor) const override;
  void seek(int64_t cursor) override { cursor_ = cursor; }
  int64_t cursor() const override { return cursor_; }
  std::vector<Row> next_step() override;
  std::map<std::string, std::pair<int64_t, std::string>> failures() const override { return {}; }

  // The row has no samples of its own and no text: R6, and nothing decoded.
  Result<Sample> sample(int64_t id) override;
  Result<Sample> prompt(int64_t id) override;
  std::string decode(const std::vector<int64_t>&) const override { return {}; }
  int64_t end_token_id() const override { return -1; }

 private:
  Row row_;
  int64_t cursor_ = 0;
};

}  // namespace keyseat::tool::bench
