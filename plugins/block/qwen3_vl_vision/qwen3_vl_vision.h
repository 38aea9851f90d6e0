// The vision tower of Qwen3-VL: patch embedding, learned and rotary positions, pre-norm transformer
// blocks with full attention inside every frame (4-models section 1).
#pragma once

#include "keyseat/interfaces/block.h"

namespace keyseat_block_qwen3_vl_vision {

// The tower's sizes, read once from the options.
struct VisionConfig {
  int64_t hidden = 0, depth = 0, heads = 0, intermediate = 0;
  int64_t patch = 0, temporal = 0, merge = 0, channels = 0, grid_side = 0;
  std::vector<int64_t> deepstack;  // blocks after which a tap is written, in tap order
  double rope_theta = 0, eps = 0, init_std = 0;
  std::string checkpoint_prefix;

  int64_t head_dim() const { return hidden / heads; }
  int64_t patch_elements() const { return channels * temporal * patch * patch; }
};

class Qwen3VlVision final : public keyseat::Block {
 public:
  static keyseat::OptionSchema options();
  static keyseat::Problems validate(const keyseat::Options& options);
  static std::vector<keyseat::HfModel> hf_models();
  Qwen3VlVision(const keyseat::Options& options, const keyseat::PluginHost& host);

  std::vector<std::unique_ptr<keyseat::Unit>> units() override;
  std::vector<keyseat::DerivedSpec> derived() override;
  keyseat::InputSpec input_spec() const override;

 private:
  VisionConfig config_;
  keyseat::InputSpec input_;
};

// patches -> vision.hidden: linear patch projection plus the interpolated position embedding.
std::unique_ptr<keyseat::Unit> make_patch_embed(const VisionConfig& config);
// vision.hidden -> vision.hidden (and vision.tap.j behind a deepstack block).
std::unique_ptr<keyseat::Unit> make_vision_layer(const VisionConfig& config, int64_t layer);

}  // namespace keyseat_block_qwen3_vl_vision
