// The training loop: batch, counts, chain, finish.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "train/failure_limit.h"
#include "train/measure.h"
#include "train/metrics.h"
#include "train/metrics_file.h"
#include "train/saver.h"
#include "train/session.h"
#include "train/update.h"

namespace keyseat::train {

struct LoopResult {
  int64_t steps = 0;             // done, in all parts of the run together
  bool stopped = false;          // by a signal, before the last step; the state is saved
  StepMetrics last;              // without steps in this part of the run: empty
  double seconds = 0;            // of this part
  std::string weights, metrics;  // files written
};

class Loop {
 public:
  // Writes into run.dir, which exists. Empty: step() only, nothing is written.
  Loop(Session& session, std::string run_dir);

  // Goes on from the newest checkpoint, where there is one; metrics.jsonl is cut back to it.
  void resume();

  // The steps of the configuration that are not done; writes metrics.jsonl, checkpoints and, behind
  // the last step, final.safetensors. Throws Error R5 on NaN or infinity, before any parameter is
  // touched.
  LoopResult run();

  // One step; returns what it reports, or nothing where a signal asked a rank to stop: then the
  // step was not begun.
  std::optional<StepMetrics> step(int64_t index);

 private:
  void finite_or_throw(const StepMetrics& metrics, const std::map<std::string, LossTerm>& terms);
  bool logs_step(int64_t index) const;
  void report(const StepMetrics& metrics);
  void evaluate_when_due(int64_t index);
  void save(int64_t next_step, int64_t cursor);

  Session& session_;
  std::string run_dir_;
  Update update_;
  Saver saver_;
  FailureLimit failure_limit_;
  WorkloadLabels labels_;
  std::optional<MetricsFile> file_;  // on the first rank, where there is a run.dir
  std::shared_ptr<Data> eval_data_;
  ResumePoint start_;
  Failures failures_;                  // of the data, behind the last step
  std::deque<double> recent_seconds_;  // of the last steps, for the ETA
  double report_seconds_ = 0;          // of the step before, which no other figure has
};

WorkloadLabels workload_labels(Session& session);

}  // namespace keyseat::train
