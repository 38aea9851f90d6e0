#include "qwen3_vl_vision.h"

#include "keyseat/nn/position_embedding.h"
#include "keyseat/nn/rope.h"

namespace keyseat_block_qwen3_vl_vision {

using keyseat::DerivedSpec;
using keyseat::Dim;
using keyseat::DimSymbol;
using keyseat::RowFacts;
using keyseat::Tensors;

Qwen3VlVision::Qwen3VlVision(const keyseat::Options& options, const keyseat::PluginHost&) {
  config_.hidden = options.get_int("hidden_size");
  config_.depth = options.get_int("depth");
  config_.heads = options.get_int("num_heads");
  config_.intermediate = options.get_int("intermediate_size");
  config_.patch = options.get_int("patch_size");
  config_.temporal = options.get_int("temporal_patch_size");
  config_.merge = options.get_int("spatial_merge_size");
  config_.channels = options.get_int("in_channels");
  config_.grid_side =
      std::llround(std::sqrt(static_cast<double>(options.get_int("num_position_embeddings"))));
  config_.deepstack = options.get_int_list("deepstack_visual_indexes");
  config_.rope_theta = options.get_float("rope_theta");
  config_.eps = options.get_float("layer_norm_eps");
  config_.init_std = options.get_float("initializer_range");
  config_.checkpoint_prefix = options.get_string("checkpoint_prefix");

  input_.patch_size = config_.patch;
  input_.temporal_patch_size = config_.temporal;
  input_.merge_size = config_.merge;
  input_.channels = config_.channels;
  input_.min_pixels = options.get_int("min_pixels");
  input_.max_pixels = options.get_int("max_pixels");
  input_.image_mean = options.get_float_list("image_mean");
  input_.image_std = options.get_float_list("image_std");
}

std::vector<std::unique_ptr<keyseat::Unit>> Qwen3VlVision::units() {
  std::vector<std::unique_ptr<keyseat::Unit>> units;
  units.push_back(make_patch_embed(config_));
  for (int64_t layer = 0; layer < config_.depth; ++layer)
    units.push_back(make_vision_layer(config_, layer));
  return units;
}

std::vector<DerivedSpec> Qwen3VlVision::derived() {
  const VisionConfig config = config_;
  const auto rope = [config](const Tensors& batch, const RowFacts& facts, bool cosine) {
    const auto tables = keyseat::nn::vision_rope_tables(facts.grid_thw, config.merge,
                                                        config.head_dim(), config.rope_theta);
    return (cosine ? tables.cos : tables.sin).to(batch.at("grid_thw").device());
  };
  const auto taps = [config](const Tensors& batch, const RowFacts& facts, bool index) {
    const auto found = keyseat::nn::position_taps(facts.grid_thw, config.merge, config.grid_side);
    return (index ? found.index_4P : found.weight_4P).to(batch.at("grid_thw").device());
  };
  const Dim patches(DimSymbol::kP), half(config.head_dim() / 2), four(4);
  const auto spec = [](std::string name, std::vector<Dim> dims, at::ScalarType dtype) {
    return keyseat::TensorSpec{std::move(name), std::move(dims),          dtype,
                               false,           keyseat::Layout::kImages, {}};
  };
  return {
      {spec("vision.rope.cos", {patches, half}, at::kFloat),
       {"grid_thw"},
       [rope](const Tensors& batch, const RowFacts& facts) { return rope(batch, facts, true); }},
      {spec("vision.rope.sin", {patches, half}, at::kFloat),
       {"grid_thw"},
       [rope](const Tensors& batch, const RowFacts& facts) { return rope(batch, facts, false); }},
      {spec("vision.position.index", {four, patches}, at::kLong),
       {"grid_thw"},
       [taps](const Tensors& batch, const RowFacts& facts) { return taps(batch, facts, true); }},
      {spec("vision.position.weight", {four, patches}, at::kFloat),
       {"grid_thw"},
       [taps](const Tensors& batch, const RowFacts& facts) { return taps(batch, facts, false); }},
  };
}

keyseat::InputSpec Qwen3VlVision::input_spec() const { return input_; }

}  // namespace keyseat_block_qwen3_vl_vision
