// What metrics.jsonl and config.toml of a run hold, as columns over its steps. Free of LibTorch.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/histogram.h"

namespace keyseat::train {

// What was not measured is NaN, or zero samples.
struct Evaluation {
  int64_t step = 0;  // the last step before it
  double loss = std::numeric_limits<double>::quiet_NaN();
  double accuracy = std::numeric_limits<double>::quiet_NaN();
  int64_t correct = 0, samples = 0;
};

struct DataFailure {
  std::string reason, example;
  int64_t count = 0;  // since the run began
};

// A loss, norm or rate that was no finite number.
struct NonFinite {
  int64_t step = 0;
  std::string field, text;  // "grad_norm", "nan"
};

struct RunRecord {
  std::string name;
  std::string config_text;
  int64_t planned_steps = 0;                                 // 0: the configuration does not say
  std::vector<std::string> blocks;                           // in chain order
  std::vector<std::pair<std::string, std::string>> plugins;  // kind -> name, as configured
  std::vector<std::pair<std::string, std::string>> labels;   // routing, precision, freeze, ...
  std::string notice;  // of mock data: no figure is a performance measurement

  std::vector<int64_t> steps;  // ascending
  // Field -> one value per step, NaN where a line has none, not finite where the run's was;
  // "milliseconds.vision" for components, "block_grad_norm.vision" for blocks.
  std::map<std::string, std::vector<double>> columns;
  std::vector<NonFinite> non_finite;
  std::vector<Evaluation> evaluations;
  std::vector<DataFailure> failures;
  // Assignments per expert, summed over the last `expert_load_steps` steps, by layer in chain
  // order.
  std::vector<std::pair<std::string, std::vector<int64_t>>> expert_load;
  int64_t expert_load_steps = 0;
  std::map<std::string, Histogram> histograms;  // of all steps: "sample_tokens", ...
  int64_t unreadable_lines = 0;                 // of metrics.jsonl, as a killed run leaves

  // Empty where no line has the field.
  const std::vector<double>& column(const std::string& field) const;
  // Fields "PREFIX.name", with their name alone; layers in the order of their numbers.
  std::vector<std::pair<std::string, std::string>> fields_of(const std::string& prefix) const;
  // The components of a step's time: blocks in chain order, then dispatcher, optimizer, data,
  // other.
  std::vector<std::string> components() const;
};

// Where a run was resumed, the later line of a step replaces the earlier ones from that step on.
// Throws Error R7 where a file cannot be read.
RunRecord read_run(const std::string& run_dir);

}  // namespace keyseat::train
