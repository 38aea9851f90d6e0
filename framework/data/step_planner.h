// Which samples make up a step, and on which data rank and row: a pure function of (seed, cursor),
// equal on every rank.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "keyseat/interfaces/data.h"

namespace keyseat::data {

struct SampleSize {
  int64_t tokens = 0, patches = 0;
};

struct PlanSettings {
  int64_t samples = 0;  // in the source, above 0
  int64_t seed = 0;
  bool shuffle = true;
  int64_t global_batch_size = 1;  // samples per step, all data ranks
  int64_t micro_batch_size = 0;   // samples per row; 0: rows are filled up to max_tokens
  int64_t max_tokens = 0;
  int64_t data_ranks = 1;
};

// Position in the endless sequence of epochs -> sample id. Every epoch is a permutation of its own.
class EpochOrder {
 public:
  EpochOrder(int64_t samples, int64_t seed, bool shuffle)
      : samples_(samples), seed_(seed), shuffle_(shuffle) {}
  int64_t at(int64_t position) const;

 private:
  int64_t samples_, seed_;
  bool shuffle_;
  mutable std::mutex mutex_;
  mutable int64_t cached_epoch_ = -1;
  mutable std::vector<int64_t> cached_;
};

class StepPlanner {
 public:
  // `sizes`: by sample id; may be empty with micro_batch_size, then every sample counts alike.
  StepPlanner(PlanSettings settings, std::vector<SampleSize> sizes);
  StepAssignment plan(int64_t cursor) const;

 private:
  int64_t cost(int64_t id) const;
  std::vector<std::vector<int64_t>> rows_by_count(const std::vector<int64_t>& ids) const;
  std::vector<std::vector<int64_t>> rows_by_tokens(const std::vector<int64_t>& ids) const;

  PlanSettings settings_;
  std::vector<SampleSize> sizes_;
  EpochOrder order_;
};

}  // namespace keyseat::data
