// Which samples make up a step, and on which data rank and row: a pure function of (seed, cursor),
// equal on every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "data/sample_order.h"
#include "keyseat/data/packed_data.h"

namespace keyseat::data {

struct PlanSettings {
  std::vector<SourceShare> sources;
  int64_t seed = 0;
  bool shuffle = true;
  int64_t global_batch_size = 1;  // samples per step, all data ranks
  int64_t micro_batch_size = 0;   // samples per row; 0: rows are filled up to max_tokens
  int64_t max_tokens = 0;
  int64_t data_ranks = 1;
};

struct PlannedStep {
  int64_t cursor = 0, next_cursor = 0;         // samples consumed before and after the step
  std::vector<std::vector<PlannedRow>> ranks;  // [data rank][row]; as many rows on every rank
};

class StepPlanner {
 public:
  // `sizes`: by sample id; may be empty with micro_batch_size, then every sample counts alike. A
  // sample that will not load counts as nothing.
  StepPlanner(PlanSettings settings, std::vector<SampleSize> sizes);
  PlannedStep plan(int64_t cursor) const;

 private:
  int64_t cost(int64_t id) const;
  int64_t cost(const PlannedRow& row) const;
  std::vector<PlannedRow> split(const PlannedRow& samples, size_t parts, size_t room) const;
  std::vector<std::vector<PlannedRow>> deal_by_count(const PlannedRow& samples) const;
  std::vector<PlannedRow> rows_by_tokens(const PlannedRow& samples) const;

  PlanSettings settings_;
  std::vector<SampleSize> sizes_;
  SampleOrder order_;
};

}  // namespace keyseat::data
