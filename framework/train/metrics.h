// What a step reports: one JSON line per step in metrics.jsonl, one progress line now and then.
#pragma once

#include <fstream>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "keyseat/batch.h"
#include "keyseat/chain.h"
#include "keyseat/executor.h"
#include "keyseat/interfaces/dispatcher.h"

namespace keyseat::train {

// Seconds of a step by component: blocks by name, then dispatcher, optimizer, data (waiting for
// it), other.
using ComponentSeconds = std::vector<std::pair<std::string, double>>;

struct StepMetrics {
  int64_t step = 0;  // from 0
  double loss = 0;   // weighted sum of all terms, each over its global normaliser
  std::map<std::string, double> terms;  // "ce", "aux", "z": unweighted
  double grad_norm = 0, clip = 1, lr = 0;
  RowCounts counts;  // of the step, all ranks
  double seconds = 0;
  ComponentSeconds components;
  std::map<std::string, std::vector<int64_t>> expert_load;  // layer -> assignments per expert
  std::map<std::string, std::pair<int64_t, std::string>> failures;  // of the data so far
  double peak_memory_bytes = 0;
  DispatcherReport dispatched;  // all ranks

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

// Sums the unit times by block and takes the dispatcher's share out of them.
ComponentSeconds component_seconds(const Chain& chain, const std::vector<UnitSeconds>& units,
                                   double optimizer, double data, double total);

nlohmann::json metrics_json(const StepMetrics& metrics, const WorkloadLabels& labels);

// "step 20/300 loss 1.2345 ...": useful and image tokens per second, padding share, milliseconds
// per component, ETA.
std::string progress_line(const StepMetrics& metrics, const WorkloadLabels& labels, int64_t steps,
                          double median_step_seconds);

inline constexpr const char* kSyntheticNotice = "mock data: not a performance measurement";

// metrics.jsonl of a run; every line is flushed.
class MetricsFile {
 public:
  explicit MetricsFile(const std::string& path);  // appends
  void write(const nlohmann::json& line);

 private:
  std::string path_;
  std::ofstream stream_;
};

}  // namespace keyseat::train
