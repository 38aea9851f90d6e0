#include "train/describe_step.h"

#include "keyseat/memory.h"

namespace keyseat::train {

StepNotes own_notes(const std::vector<Row>& rows, const InputSpec& input, const Data& data,
                    bool ids) {
  StepNotes notes;
  notes.statistics = row_statistics(rows, input.merge_size);
  notes.failures = data.failures();
  for (const Row& row : rows) {
    if (ids) notes.sample_ids.push_back(row.facts.sample_ids);
  }
  return notes;
}

void describe_outcome(const Chain& chain, const StepSums& sums, StepNotes notes,
                      const Failures& before, StepMetrics& metrics) {
  metrics.routers = router_metrics(chain, sums.router_stats, metrics.counts.tokens);
  metrics.statistics = std::move(notes.statistics);
  metrics.sample_ids = std::move(notes.sample_ids);
  metrics.failures = before;
  add_failures(notes.failures, metrics.failures);
  const MemoryStatistics memory = memory_statistics();
  metrics.peak_memory_bytes = static_cast<double>(memory.peak);
  for (int i = 0; i < kMemoryCategories && memory.peak > 0; ++i) {
    metrics.memory_peaks[memory_category_name(static_cast<MemoryCategory>(i))] =
        static_cast<double>(memory.category_peaks[i]);
  }
}

}  // namespace keyseat::train
