// What our side computes: one packed micro-batch forward and backward with all taps, then the
// recorded optimizer steps.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "keyseat/safetensors.h"
#include "tools/keyseat/parity/batch.h"
#include "train/session.h"

namespace keyseat::tool::parity {

// Keeps the first tensor of every name while it is switched on. A layer taps its sum before
// deepstack features are added under a name of its own first; the executor taps what the unit wrote
// under the same name behind it.
class TapRecorder final : public TapSink {
 public:
  bool wants(const std::string& name) const override { return on && !tensors_.contains(name); }
  void receive(const std::string& name, const at::Tensor& tensor) override;

  bool on = false;
  const std::map<std::string, at::Tensor>& tensors() const { return tensors_; }

 private:
  std::map<std::string, at::Tensor> tensors_;
};

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

struct StepFigures {
  double loss = 0;
  std::map<std::string, double> terms;  // "ce", "aux": unweighted means
  double grad_norm = 0, clip = 1;       // not behind the last update
};

struct ModelRun {
  // Of the first forward and backward.
  Tensors row;  // batch tensors of the packed row
  RowFacts facts;
  std::map<std::string, double> loss_sums;
  std::map<std::string, std::vector<int64_t>> expert_load;  // layer -> assignments per expert
  // Checkpoint names and the layout in which the recording stores them.
  NamedTensors gradients;  // of parameters that took part
  std::set<std::string> without_gradient;
  NamedTensors before, after;  // masters
  std::vector<StepFigures> steps;
  double aux_weight = 0;
  Mesh mesh;
};

// `updates`: optimizer steps to take; the loss is evaluated once more behind the last one.
ModelRun run_model(train::Session& session, TapRecorder& taps, const Batch& batch,
                   const SafetensorsReader& weights, int64_t updates);

}  // namespace keyseat::tool::parity
