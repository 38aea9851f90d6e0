#include "train/describe_step.h"

#include "keyseat/memory.h"

namespace keyseat::train {

int64_t describe_rows(const std::vector<Row>& rows, const InputSpec& input, bool ids,
                      StepMetrics& metrics) {
  metrics.statistics = row_statistics(rows, input.merge_size);
  int64_t tokens = 0;
  for (const Row& row : rows) {
    tokens += row.facts.counts.tokens;
    if (ids) metrics.sample_ids.push_back(row.facts.sample_ids);
  }
  return tokens;
}

void describe_outcome(const Executor& executor, const Data& data, int64_t own_tokens,
                      const Failures& before, StepMetrics& metrics) {
  metrics.routers = router_metrics(executor.chain(), executor, own_tokens);
  metrics.failures = before;
  for (const auto& [reason, failure] : data.failures()) {
    auto& [count, example] = metrics.failures[reason];
    count += failure.first;
    if (example.empty()) example = failure.second;
  }
  const MemoryStatistics memory = memory_statistics();
  metrics.peak_memory_bytes = static_cast<double>(memory.peak);
  for (int i = 0; i < kMemoryCategories && memory.peak > 0; ++i) {
    metrics.memory_peaks[memory_category_name(static_cast<MemoryCategory>(i))] =
        static_cast<double>(memory.category_peaks[i]);
  }
}

}  // namespace keyseat::train
