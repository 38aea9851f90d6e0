// Stops a run once more samples have failed than its data source allows, or where there is nothing
// in the source that can be trained on.
#pragma once

#include "keyseat/batch.h"
#include "keyseat/interfaces/data.h"

namespace keyseat::train {

class FailureLimit {
 public:
  // Adds a step, counted over all ranks, so that all of them stop at the same one, whatever was
  // loaded ahead. Throws R6 beyond data.max_failed_samples(), and where the source has been gone
  // through once without one supervised token.
  void add(const RowCounts& step, const Data& data);

  // Behind the last step, before its weights are called trained. Throws R6 where no step had a
  // supervised token.
  void finish(const Data& data) const;

  // Goes on behind `samples` of earlier steps (the cursor of the data), of which so many had
  // failed.
  void restore(int64_t samples, int64_t failed);

  int64_t failed() const { return failed_; }

 private:
  int64_t failed_ = 0;
  int64_t seen_ = 0;  // samples of all steps, failed ones included
  bool supervised_ = false;
};

}  // namespace keyseat::train
