// The endless sequence of samples: epochs of one source, or sources mixed by weight. A pure
// function of (seed, position), equal on every rank.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "keyseat/data/packed_data.h"

namespace keyseat::data {

struct PlannedSample {
  int64_t id = 0;    // sources one after the other
  int64_t pass = 0;  // epoch of its own source
  bool operator==(const PlannedSample&) const = default;
};
using PlannedRow = std::vector<PlannedSample>;

// Position in the endless sequence of epochs -> sample id. Every epoch is a permutation of its own.
class EpochOrder {
 public:
  EpochOrder(int64_t samples, int64_t seed, bool shuffle)
      : samples_(samples), seed_(seed), shuffle_(shuffle) {}
  int64_t at(int64_t position) const;
  int64_t samples() const { return samples_; }

 private:
  int64_t samples_, seed_;
  bool shuffle_;
  mutable std::mutex mutex_;
  mutable int64_t cached_epoch_ = -1;
  mutable std::vector<int64_t> cached_;
};

class SampleOrder {
 public:
  // Throws C3 for a source without samples or with a weight that is not positive.
  SampleOrder(const std::vector<SourceShare>& sources, int64_t seed, bool shuffle);
  PlannedSample at(int64_t position) const;

 private:
  // A source has its samples at fixed places of a pattern that repeats, spread evenly over it.
  struct Slot {
    int32_t source = 0;
    int32_t earlier = 0;  // slots of the same source before this one
  };
  std::deque<EpochOrder> epochs_;  // not movable
  std::vector<int64_t> first_ids_;
  std::vector<int64_t> slots_of_;  // of each source, in one pattern
  std::vector<Slot> pattern_;
};

}  // namespace keyseat::data
