// The decoder of Qwen3-MoE, Qwen3-VL-MoE and dense Qwen3(-VL): token embedding with vision scatter,
// pre-norm layers with grouped-query attention and dense or mixture-of-experts feed-forward, head
// and losses (4-models sections 2 and 3).
#pragma once

#include "keyseat/interfaces/block.h"
#include "keyseat/nn/router.h"

namespace keyseat_block_qwen3_moe {

// The decoder's sizes, read once from the options.
struct DecoderConfig {
  int64_t vocab = 0, hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t dense_width = 0, expert_width = 0, experts = 0, sparse_step = 1;
  std::vector<int64_t> mlp_only_layers, mrope_section;
  int64_t deepstack = 0;  // features added behind the first layers
  keyseat::nn::RouterOptions router;
  bool tied = false, vision = false;
  double eps = 0, rope_theta = 0, init_std = 0;
  std::string checkpoint_prefix;  // "model.language_model." or "model."
  std::string expert_layout;

  bool is_moe(int64_t layer) const;
  std::vector<int64_t> moe_layers() const;
};

class Qwen3Moe final : public keyseat::Block {
 public:
  static keyseat::OptionSchema options();
  static keyseat::Problems validate(const keyseat::Options& options);
  static std::vector<keyseat::HfModel> hf_models();
  Qwen3Moe(const keyseat::Options& options, const keyseat::PluginHost& host);

  std::vector<std::unique_ptr<keyseat::Unit>> units() override;
  std::vector<keyseat::DerivedSpec> derived() override;
  keyseat::InputSpec input_spec() const override;

 private:
  DecoderConfig config_;
  keyseat::InputSpec input_;
};

// tokens (, vision.merged, visual_dst) -> hidden.
std::unique_ptr<keyseat::Unit> make_embedding(const DecoderConfig& config);
// hidden (, deepstack.j, visual_dst) -> hidden (, router.stats.L, router.z.L).
std::unique_ptr<keyseat::Unit> make_layer(const DecoderConfig& config, int64_t layer);
// hidden, labels, logit_rows, router.* -> loss.ce, loss.aux, loss.z, logits.
std::unique_ptr<keyseat::Unit> make_head(const DecoderConfig& config);

// Adds a parameter with its checkpoint name `prefix` + name.
keyseat::ParamSpec& add_param(keyseat::UnitSpec& spec, const std::string& prefix,
                              const std::string& name, std::vector<int64_t> shape,
                              keyseat::ParamRole role, const DecoderConfig& config);

// Of the table of tokens and of the head: over tensor ranks each holds a part of the vocabulary.
keyseat::TensorSplit vocabulary_split(const DecoderConfig& config);

}  // namespace keyseat_block_qwen3_moe
