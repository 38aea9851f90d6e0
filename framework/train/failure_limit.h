// Stops a run once more samples have failed than its data source allows.
#pragma once

#include "keyseat/batch.h"
#include "keyseat/interfaces/data.h"

namespace keyseat::train {

class FailureLimit {
 public:
  // Adds the failures of a step, counted over all ranks, so that all of them stop at the same one,
  // whatever was loaded ahead. Throws R6 beyond data.max_failed_samples().
  void add(const RowCounts& step, const Data& data);

  // State of a checkpoint, beside the cursor of the data: failures of the steps before.
  int64_t failed() const { return failed_; }
  void restore(int64_t failed) { failed_ = failed; }

 private:
  int64_t failed_ = 0;
};

}  // namespace keyseat::train
