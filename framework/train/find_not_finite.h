// A step whose loss or gradient is not finite is run again to find where that begins.
#pragma once

#include <map>
#include <string>

#include "train/session.h"

namespace keyseat::train {

// Runs the step once more, row by row, with the data from `cursor` on, and looks at every
// parameter, tensor and gradient. Returns a clause that names the first one that is not finite:
// micro-batch, unit, forward or backward, tensor, and the samples of the row; or that nothing was
// found. All ranks call it; no parameter is changed.
std::string first_not_finite(Session& session, int64_t step, int64_t cursor,
                             const std::map<std::string, LossTerm>& terms);

}  // namespace keyseat::train
