// The mergers of Qwen3-VL: m x m patches become one visual token of the decoder's width. The final
// merger normalises every patch before merging, the deepstack mergers the merged vector (4-models
// section 1, items 5 and 6).
#pragma once

#include "keyseat/interfaces/block.h"

namespace keyseat_block_qwen3_vl_projector {

class Qwen3VlProjector final : public keyseat::Block {
 public:
  static keyseat::OptionSchema options();
  static std::vector<keyseat::HfModel> hf_models();
  Qwen3VlProjector(const keyseat::Options& options, const keyseat::PluginHost& host);

  // One deepstack merger behind the writer of every vision.tap.j, then the final merger.
  std::vector<std::unique_ptr<keyseat::Unit>> units() override;
  // The merged block, which has to be that of the tower and of the data.
  keyseat::InputSpec input_spec() const override;

 private:
  keyseat::Options options_;
};

struct MergerConfig {
  int64_t hidden = 0, out_hidden = 0,
          merge = 0;  // of the tower, of the decoder, edge of the merged block
  double eps = 0, init_std = 0;
  std::string name;  // of the unit and in the checkpoint: "merger", "deepstack_merger_list.0"
  std::string checkpoint_prefix;
  std::string reads, writes;  // "vision.tap.0" -> "deepstack.0"
  bool norm_after_merge = false;

  int64_t merged() const { return hidden * merge * merge; }
};

std::unique_ptr<keyseat::Unit> make_merger(const MergerConfig& config);

}  // namespace keyseat_block_qwen3_vl_projector
