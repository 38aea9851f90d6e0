// Strategy `single`: every parameter of the model in this process, no communication.
#pragma once

#include <memory>
#include <vector>

#include "keyseat/interfaces/strategy.h"
#include "unit_memory.h"

namespace keyseat_strategy_single {

class Single final : public keyseat::Strategy {
 public:
  Single(const keyseat::Options& options, const keyseat::PluginHost& host);
  static keyseat::OptionSchema options();

  keyseat::MeshDegrees degrees(int64_t world) const override;
  keyseat::Problems validate(const keyseat::StrategyFacts& facts,
                             const keyseat::Chain& chain) const override;
  void place(const keyseat::StrategyFacts& facts, const keyseat::Chain& chain,
             const keyseat::Mesh& mesh, keyseat::Comm& comm) override;
  void schedule(keyseat::StepPlan plan, keyseat::Executor& executor) override;
  void finish() override {}
  std::vector<keyseat::OptimizerShard>& shards(int64_t states) override;
  std::vector<keyseat::NormGroup> norm_groups() override;
  void after_update() override {}
  at::Tensor read_master(int unit, int param) override;
  void write_master(int unit, int param, const at::Tensor& value) override;
  at::Tensor read_gradient(int unit, int param) override;
  at::Tensor read_state(int unit, int param, int64_t state) override;
  void write_state(int unit, int param, int64_t state, const at::Tensor& value) override;
  keyseat::MemoryEstimate estimate(const keyseat::StrategyFacts& facts, const keyseat::Chain& chain,
                                   const keyseat::WorkloadShape& shape,
                                   int64_t optimizer_states) const override;

  const keyseat::Params& before_forward(int unit, bool training) override;
  void after_forward(int) override {}
  const keyseat::Params& before_backward(int unit) override;
  void after_backward(int) override {}

 private:
  std::vector<at::Tensor> flat_gradients() const;  // of the trained units
  const keyseat::ParamSpec& spec(keyseat::ParamRef owner) const;
  // The flat optimizer state of the owner's elements; undefined where it is not trained.
  at::Tensor state_range(keyseat::ParamRef owner, int64_t state) const;

  const keyseat::Chain* chain_ = nullptr;
  std::vector<std::unique_ptr<UnitMemory>> memory_;  // by unit
  std::vector<keyseat::OptimizerShard> shards_;
  std::vector<std::vector<at::Tensor>> flat_states_;  // by unit; empty where it is not trained
};

}  // namespace keyseat_strategy_single
