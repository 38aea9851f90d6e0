// Figures of a step beside its losses: what the rows were like, what routers, data and memory did.
#pragma once

#include "keyseat/interfaces/data.h"
#include "train/metrics.h"
#include "train/step_notes.h"
#include "train/step_sums.h"

namespace keyseat::train {

// This rank's part of the notes of a step, before its rows are handed over; `ids`: name the
// samples.
StepNotes own_notes(const std::vector<Row>& rows, const InputSpec& input, const Data& data,
                    bool ids);

// Behind the update. `sums`, `notes`: of all ranks. `before`: failures of an earlier part of the
// run.
void describe_outcome(const Chain& chain, const StepSums& sums, StepNotes notes,
                      const Failures& before, StepMetrics& metrics);

}  // namespace keyseat::train
