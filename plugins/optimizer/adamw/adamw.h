// AdamW (Loshchilov and Hutter), exactly as torch.optim.AdamW, with bias correction by the count of
// each parameter.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "adamw_kernel.h"
#include "keyseat/interfaces/optimizer.h"

namespace keyseat_optimizer_adamw {

class AdamW final : public keyseat::Optimizer {
 public:
  AdamW(const keyseat::Options& options, const keyseat::PluginHost& host);
  static keyseat::OptionSchema options();
  static keyseat::Problems validate(const keyseat::Options& options);

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  double base_lr() const override { return lr_; }

 protected:
  void step_(std::vector<keyseat::OptimizerShard>& shards) override;

 private:
  // What the kernel needs of one shard.
  struct Range {
    Coefficients coefficients;
    int64_t count;
    float *master, *m, *v;
    const float* grad;
    uint16_t* compute;  // null: none, or not bf16
    int64_t first_chunk;
  };
  Coefficients coefficients(const keyseat::OptimizerShard& shard) const;

  double lr_, beta1_, beta2_, eps_, weight_decay_;
  std::set<keyseat::ParamRole> decayed_;
  Update update_;
  std::vector<Range> ranges_;  // a member, so that a step allocates nothing
};

}  // namespace keyseat_optimizer_adamw
