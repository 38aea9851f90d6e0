// What a step reports: one JSON line per step in metrics.jsonl, one progress line now and then.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/failures.h"
#include "keyseat/batch.h"
#include "keyseat/chain.h"
#include "keyseat/executor.h"
#include "keyseat/interfaces/dispatcher.h"
#include "train/norms.h"
#include "train/router_metrics.h"
#include "train/row_statistics.h"

namespace keyseat::train {

using data::Failures;

// Seconds of a step by component: blocks by name, then dispatcher, strategy, norm, optimizer, data
// (waiting for it), other. They sum to the step.
using ComponentSeconds = std::vector<std::pair<std::string, double>>;

// What a step spends its time on, measured at the borders of its parts. The units' times come from
// the executor.
struct StepSeconds {
  double data = 0;   // waiting for rows
  double chain = 0;  // the strategy's schedule and finish: units, and what it does around them
  double norm = 0, optimizer = 0;
  double total = 0;
};

struct StepMetrics {
  int64_t step = 0;  // from 0
  double loss = 0;   // weighted sum of all terms, each over its global normaliser
  std::map<std::string, double> terms;  // "ce", "aux", "z": unweighted
  double grad_norm = 0, clip = 1, lr = 0;
  Norms norms;         // by block; of the parameters before the update, on the steps that log them
  RowCounts counts;    // of the step, all ranks
  int64_t cursor = 0;  // of the data before the step
  // Of the rows of all ranks, on the first rank (train/step_notes.h).
  RowStatistics statistics;
  std::vector<std::vector<int64_t>> sample_ids;  // row by row, where log.samples asks
  double seconds = 0;
  double host_seconds = 0;  // outside of tensor work and of waiting for data
  ComponentSeconds components;
  std::map<std::string, RouterMetrics> routers;  // by MoE layer, all ranks
  Failures failures;             // of the data since the run began; all ranks, on the first one
  double peak_memory_bytes = 0;  // of this rank; so are memory_peaks and all seconds
  std::map<std::string, double> memory_peaks;  // bytes by what they are for, each at its own time
  DispatcherReport dispatched;                 // all ranks

  double useful_tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(counts.tokens) / seconds : 0;
  }
  double image_tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(counts.visual_tokens) / seconds : 0;
  }
  double padding_share() const {
    const auto slots = static_cast<double>(counts.tokens + counts.padding);
    return slots > 0 ? static_cast<double>(counts.padding) / slots : 0;
  }
};

// What two runs must share to be ranked (6-measuring); repeated in every line, so that a line can
// stand alone.
struct WorkloadLabels {
  std::string routing = "natural";
  std::vector<std::string> freeze;
  std::string precision;
  std::string recompute;
  bool synthetic = false;  // mock data: no figure is a performance measurement
};

// Writes seconds, components and host_seconds. A block's component is the time of its units without
// the dispatcher's share; `other` is what no part of the step accounts for, so that all of them sum
// to the step. host_seconds is `other` and what the executor does around the units' own code: work
// of the host, as far as it is not inside of an operation.
void set_seconds(const Chain& chain, const std::vector<UnitSeconds>& units, const StepSeconds& step,
                 StepMetrics& metrics);

nlohmann::json metrics_json(const StepMetrics& metrics, const WorkloadLabels& labels);

// "step 20/300 loss 1.2345 ...": useful and image tokens per second, padding share, milliseconds
// per component, ETA.
std::string progress_line(const StepMetrics& metrics, const WorkloadLabels& labels, int64_t steps,
                          double median_step_seconds);

inline constexpr const char* kSyntheticNotice = "mock data: not a performance measurement";

}  // namespace keyseat::train
