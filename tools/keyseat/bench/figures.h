// What `keyseat bench` reports, in the words of the project's measuring rules.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/keyseat/bench/gemm_peak.h"
#include "train/metrics.h"
#include "train/session.h"
#include "train/workload.h"

namespace keyseat::tool::bench {

struct Figures {
  double step0_loss = 0;                  // before the first update
  std::vector<train::StepMetrics> steps;  // timed ones
  std::vector<GemmRate> before, after;    // of the timed steps
  train::StepFlops flops;                 // of a step
  int64_t threads = 0, parameters = 0, warmup = 0;
  train::WorkloadLabels labels;

  // Seconds of the timed steps, ascending.
  std::vector<double> seconds() const;
};

double median_of(std::vector<double> values);

nlohmann::json figures_json(const Figures& figures);
std::string figures_text(const Figures& figures);

}  // namespace keyseat::tool::bench
