// Strategy `three_d`: the chain cut into pipeline stages; within a stage the ranks share rows,
// parameters, experts and the data, and each holds a shard of the optimizer state (ZeRO-1).
#pragma once

#include <memory>
#include <vector>

#include "gradient_sums.h"
#include "keyseat/interfaces/strategy.h"
#include "resident_values.h"
#include "settings.h"
#include "stage_links.h"
#include "tied_stages.h"

namespace keyseat_strategy_three_d {

class ThreeD final : public keyseat::Strategy {
 public:
  ThreeD(const keyseat::Options& options, const keyseat::PluginHost& host);
  static keyseat::OptionSchema options() { return option_schema(); }

  keyseat::MeshDegrees degrees(int64_t world) const override { return settings_.degrees(world); }
  keyseat::Problems validate(const keyseat::StrategyFacts& facts,
                             const keyseat::Chain& chain) const override;
  void place(const keyseat::StrategyFacts& facts, const keyseat::Chain& chain,
             const keyseat::Mesh& mesh, keyseat::Comm& comm) override;
  void pad(std::vector<keyseat::Row>& rows) const override;
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
  std::vector<int64_t> unit_stages(const keyseat::StrategyFacts& facts,
                                   const keyseat::Chain& chain) const override;

  const keyseat::Params& before_forward(int unit, bool training) override;
  void after_forward(int /*unit*/) override {}
  const keyseat::Params& before_backward(int unit) override;
  void after_backward(int unit) override;

 private:
  // What one stage's schedule() runs on.
  struct Step;
  void run(const Action& action, Step& step);

  // Of a layout that validate() refuses: one stage.
  Stages stages_for(const keyseat::StrategyFacts& facts, const keyseat::Chain& chain) const;
  keyseat::sharding::LayoutRules layout_rules(const keyseat::StrategyFacts& facts,
                                              const Stages& stages, int64_t stage) const;
  // The unit's parameter as it lies on this stage, or null.
  keyseat::sharding::Bucket* bucket_of(int unit, int param) const;
  const keyseat::ParamSpec& spec(keyseat::ParamRef owner) const;
  // Some trained parameter of the block has such holders, on whatever stage.
  bool trains(const std::string& block, keyseat::sharding::Holders holders) const;
  // Whose squares add up to those of the parameters with such holders, each element once.
  std::vector<keyseat::Axis> norm_axes(keyseat::sharding::Holders holders) const;
  // Says which units tensor ranks do not share, and why.
  void report_replicated(const keyseat::Chain& chain) const;
  // The whole parameter out of the shards of its owner's stage, on all ranks.
  using ShardOf = const at::Tensor& (*)(const keyseat::sharding::Bucket& bucket, int64_t state);
  at::Tensor read(int unit, int param, ShardOf shard, int64_t state = 0);

  const keyseat::Options options_;
  const Settings settings_;
  const std::shared_ptr<spdlog::logger> log_;  // null in tests
  const keyseat::Chain* chain_ = nullptr;
  keyseat::Mesh mesh_;
  at::Device device_ = at::kCPU;
  int64_t stage_ = 0;
  Stages stages_;
  keyseat::CommGroup* pipeline_ = nullptr;  // ranks of all stages with this one's place; null: one
  keyseat::sharding::RankGroups ranks_;
  keyseat::sharding::ModelLayout layout_;  // of this stage
  std::vector<std::unique_ptr<keyseat::sharding::Bucket>> buckets_;
  std::vector<std::unique_ptr<keyseat::sharding::GatherGroup>> groups_;
  std::unique_ptr<ResidentValues> values_;
  std::unique_ptr<GradientSums> sums_;
  std::unique_ptr<TiedStages> ties_;
  std::unique_ptr<StageLinks> links_;
  const keyseat::Params no_params_;  // of units without parameters
  bool last_row_ = false;            // what runs is the last micro-batch of its chunk
  std::vector<keyseat::OptimizerShard> shards_;
};

}  // namespace keyseat_strategy_three_d
