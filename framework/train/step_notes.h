// What a rank knows of its own rows only. The figures of a step are those of all ranks, so these
// are brought together.
#pragma once

#include <string>
#include <vector>

#include "keyseat/interfaces/comm.h"
#include "keyseat/mesh.h"
#include "train/metrics.h"

namespace keyseat::train {

struct StepNotes {
  RowStatistics statistics;
  std::vector<std::vector<int64_t>> sample_ids;  // of each row; empty where nobody asked
  Failures failures;                             // of the data, in the steps handed out so far
};

// Of all data ranks: histograms and counts are added, rows follow in the order of data ranks. Every
// rank calls it; the result is whole on the first rank, which reports, and `own` on the others.
StepNotes gather_notes(const StepNotes& own, Comm& comm, const Mesh& mesh);

// Adds the counts of `more`; the first example of a reason stays.
void add_failures(const Failures& more, Failures& failures);

}  // namespace keyseat::train
