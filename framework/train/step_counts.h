// The Counts step: one small all-gather tells every rank all row sizes of the step, before the
// first forward.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "keyseat/batch.h"
#include "keyseat/chain.h"
#include "keyseat/config.h"
#include "keyseat/executor.h"
#include "keyseat/interfaces/comm.h"

namespace keyseat::train {

struct StepCounts {
  std::vector<RowCounts> micro_batches;  // by micro-batch, summed over the ranks that share it
  RowCounts total;                       // of the step, all ranks
  bool stop = false;                     // a rank was asked to stop the run
};

// Ranks of one data rank work on the same rows; true for the first of them, so that what is counted
// by rows is counted once. In the order of ranks these are the data ranks.
bool speaks_for_rows(const Mesh& mesh, int64_t rank);

// Gathers and writes RowFacts::shared_tokens of every row. Every rank has the same number of rows.
// `stop`: this rank wants the run to stop; all ranks learn of it together. R6, on every rank, where
// those of one data rank have different rows.
StepCounts gather_counts(std::vector<Row>& rows, Comm& comm, const Mesh& mesh, bool stop = false);

// Weight and global normaliser of every loss the chain writes.
std::map<std::string, LossTerm> loss_terms(const Chain& chain, const LossSettings& settings,
                                           const RowCounts& total);

// Rows of this symbol over all ranks; decides which blocks take part in an update.
int64_t rows_of(DimSymbol symbol, const RowCounts& counts);

}  // namespace keyseat::train
