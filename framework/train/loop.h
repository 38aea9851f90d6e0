// The training loop: batch, counts, chain, finish.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/session.h"
#include "train/update.h"

namespace keyseat::train {

struct LoopResult {
  int64_t steps = 0;
  StepMetrics last;
  double seconds = 0;            // of all steps
  std::string weights, metrics;  // files written
};

class Loop {
 public:
  // Writes into run.dir, which exists. Empty: step() only, nothing is written.
  Loop(Session& session, std::string run_dir);

  // All steps of the configuration; writes metrics.jsonl and final.safetensors. Throws Error R5 on
  // NaN or infinity, before any parameter is touched.
  LoopResult run();

  // One step; returns what it reports.
  StepMetrics step(int64_t index);

 private:
  void finite_or_throw(const StepMetrics& metrics) const;
  void report(const StepMetrics& metrics);
  void evaluate_when_due(int64_t index);

  Session& session_;
  std::string run_dir_;
  Update update_;
  WorkloadLabels labels_;
  std::optional<MetricsFile> file_;  // where there is a run.dir
  std::shared_ptr<Data> eval_data_;
  std::deque<double> recent_seconds_;  // of the last steps, for the ETA
};

WorkloadLabels workload_labels(Session& session);

}  // namespace keyseat::train
