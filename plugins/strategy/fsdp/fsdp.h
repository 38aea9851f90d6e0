// Strategy `fsdp`: every rank keeps a shard of every parameter, gradient and optimizer state; a
// unit's parameters are whole only while it runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gather_schedule.h"
#include "gradient_reducer.h"
#include "keyseat/interfaces/strategy.h"
#include "settings.h"

namespace keyseat_strategy_fsdp {

class Fsdp final : public keyseat::Strategy {
 public:
  Fsdp(const keyseat::Options& options, const keyseat::PluginHost& host);
  static keyseat::OptionSchema options() { return option_schema(); }

  keyseat::MeshDegrees degrees(int64_t world) const override { return settings_.degrees(world); }
  keyseat::Problems validate(const keyseat::StrategyFacts& facts,
                             const keyseat::Chain& chain) const override;
  void place(const keyseat::StrategyFacts& facts, const keyseat::Chain& chain,
             const keyseat::Mesh& mesh, keyseat::Comm& comm) override;
  void schedule(keyseat::StepPlan plan, keyseat::Executor& executor) override;
  void finish() override;
  std::vector<keyseat::OptimizerShard>& shards(int64_t states) override;
  std::vector<keyseat::NormGroup> norm_groups() override;
  void after_update() override;
  at::Tensor read_master(int unit, int param) override;
  void write_master(int unit, int param, const at::Tensor& value) override;
  at::Tensor read_gradient(int unit, int param) override;
  at::Tensor read_state(int unit, int param, int64_t state) override;
  void write_state(int unit, int param, int64_t state, const at::Tensor& value) override;
  keyseat::MemoryEstimate estimate(const keyseat::StrategyFacts& facts, const keyseat::Chain& chain,
                                   const keyseat::WorkloadShape& shape,
                                   int64_t optimizer_states) const override;

  const keyseat::Params& before_forward(int unit, bool training) override;
  void after_forward(int unit) override;
  const keyseat::Params& before_backward(int unit) override;
  void after_backward(int unit) override;

 private:
  Bucket& bucket_of(int unit, int param) { return *buckets_[layout_.places[unit][param].bucket]; }
  // The whole parameter out of a flat shard of its bucket.
  at::Tensor read(int unit, int param, const at::Tensor& shard);
  std::string label(int unit, bool backward) const;  // in the trace

  const keyseat::Options options_;
  const Settings settings_;
  const keyseat::Chain* chain_ = nullptr;
  RankGroups ranks_;
  ModelLayout layout_;
  std::unique_ptr<SlotPlan> slots_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<std::unique_ptr<GatherGroup>> groups_;
  Trace trace_;
  std::unique_ptr<GatherSchedule> gathers_;
  std::unique_ptr<GradientReducer> reducer_;
  const keyseat::Params no_params_;  // of units without parameters
  bool last_row_ = false;            // of the step
  std::vector<keyseat::OptimizerShard> shards_;
};

}  // namespace keyseat_strategy_fsdp
