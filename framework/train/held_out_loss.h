// The loss on held-out samples.
#pragma once

#include "train/session.h"

namespace keyseat::train {

struct HeldOutLoss {
  double sum = 0;          // of the cross-entropy
  int64_t supervised = 0;  // tokens that it is summed over
  int64_t samples = 0;     // that took part
  int64_t failed = 0;      // that could not be decoded; they are left out
  double loss() const { return supervised > 0 ? sum / static_cast<double>(supervised) : 0; }
};

// Cross-entropy of the first `limit` samples (0: all) in source order, as training would see them
// without augmentation. Changes no parameter, no statistic and no random number of the run. The
// data ranks share the samples; all ranks call it and get the same result.
HeldOutLoss held_out_loss(Session& session, Data& data, int64_t limit);

}  // namespace keyseat::train
