// Figures of a step beside its losses: what the rows were like, what routers, data and memory did.
#pragma once

#include "keyseat/interfaces/data.h"
#include "train/metrics.h"

namespace keyseat::train {

// Before the rows are handed over; `ids`: name the samples. Returns the rows' real tokens.
int64_t describe_rows(const std::vector<Row>& rows, const InputSpec& input, bool ids,
                      StepMetrics& metrics);

// Behind the update. `own_tokens`: of this rank's rows. `before`: failures of an earlier part of
// the run.
void describe_outcome(const Executor& executor, const Data& data, int64_t own_tokens,
                      const Failures& before, StepMetrics& metrics);

}  // namespace keyseat::train
