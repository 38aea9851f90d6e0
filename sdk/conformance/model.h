// The model of a configuration, ready to run in this process without a strategy: for the
// conformance of blocks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "keyseat/chain.h"
#include "keyseat/executor.h"
#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/data.h"
#include "keyseat/mesh.h"
#include "nn/testing.h"
#include "sdk/conformance/subject.h"

namespace keyseat::conformance {

// fp32 parameters that start as their specs say, a little shaken, so that no gradient is zero for a
// reason of symmetry.
class ModelParams final : public UnitEvents {
 public:
  ModelParams(const Chain& chain, bool with_sinks);
  const Params& before_forward(int unit, bool) override { return *params_[unit]; }
  void after_forward(int) override {}
  const Params& before_backward(int unit) override { return *params_[unit]; }
  void after_backward(int) override {}

  // Of the parameter that owns its values; [unit][param] as in the chain.
  const at::Tensor& value(int unit, int param) const;
  at::Tensor gradient(int unit, int param) const;  // undefined where none came

 private:
  std::vector<std::unique_ptr<Params>> params_;
};

struct ModelRun {
  std::map<std::string, double> losses;  // sums by term
  double total = 0;                      // weighted and normalised, what the gradients are of
  // Tokens per expert of every layer, one behind the other: where they differ between two runs, the
  // loss has jumped.
  std::vector<int64_t> routed;
};

class Model {
 public:
  explicit Model(const Subject& subject);
  const Chain& chain() const { return chain_; }
  const std::string& block() const { return block_; }  // name of the block under test

  // Samples with text and, where the model takes them, images, packed row by row.
  Row row(const std::vector<int64_t>& samples) const;
  std::vector<Row> rows() const;  // an image, text only, both together

  struct RunOptions {
    Kernels kernels = Kernels::kFast;
    Recompute* recompute = nullptr;
    bool backward = true;
    bool all_in_flight = false;  // all rows forward, then all backward
  };
  ModelRun run(ModelParams& params, std::vector<Row> rows, const RunOptions& options);
  ModelRun run(ModelParams& params, std::vector<Row> rows) {
    return run(params, std::move(rows), RunOptions());
  }

 private:
  Sample sample(int64_t id) const;

  Chain chain_;
  std::string block_;
  Mesh mesh_;
  std::shared_ptr<Comm> comm_;
  nn::check::SortingDispatcher dispatcher_;
};

}  // namespace keyseat::conformance
