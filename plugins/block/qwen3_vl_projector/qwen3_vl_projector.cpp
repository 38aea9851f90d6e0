#include "qwen3_vl_projector.h"

namespace keyseat_block_qwen3_vl_projector {

using keyseat::HfModel;
using keyseat::Option;
using keyseat::OptionLevel;
using keyseat::OptionType;

keyseat::OptionSchema Qwen3VlProjector::options() {
  return {
      Option("hidden_size", OptionType::kInt)
          .required()
          .range(1, 1 << 24)
          .doc("Width of the vision tower."),
      Option("out_hidden_size", OptionType::kInt)
          .required()
          .range(1, 1 << 24)
          .doc("Width of the decoder."),
      Option("spatial_merge_size", OptionType::kInt)
          .defaults_to(int64_t{2})
          .range(1, 64)
          .doc("Edge, in patches, of the block that becomes one visual token."),
      Option("deepstack_visual_indexes", OptionType::kIntList)
          .defaults_to(std::vector<int64_t>{})
          .range(0, 1023)
          .doc("As in the tower; one deepstack merger per entry."),
      Option("layer_norm_eps", OptionType::kFloat)
          .defaults_to(1e-6)
          .range(0, 1)
          .level(OptionLevel::kTuning)
          .doc("Added to the variance in every LayerNorm."),
      Option("initializer_range", OptionType::kFloat)
          .defaults_to(0.02)
          .range(0, 10)
          .level(OptionLevel::kTuning)
          .doc("Standard deviation of fresh matrices."),
      Option("checkpoint_prefix", OptionType::kString)
          .defaults_to(std::string("model.visual."))
          .level(OptionLevel::kDeveloper)
          .doc("Begins every checkpoint name of the mergers."),
  };
}

std::vector<HfModel> Qwen3VlProjector::hf_models() {
  std::vector<HfModel> models;
  for (const char* type : {"qwen3_vl_moe", "qwen3_vl"}) {
    HfModel model;
    model.model_type = type;
    model.block_name = "projector";
    model.order = 1;
    for (const char* name : {"hidden_size", "out_hidden_size", "spatial_merge_size",
                             "deepstack_visual_indexes", "initializer_range"}) {
      model.options.push_back({name, {std::string("vision_config.") + name}, {}});
    }
    models.push_back(std::move(model));
  }
  return models;
}

Qwen3VlProjector::Qwen3VlProjector(const keyseat::Options& options, const keyseat::PluginHost&)
    : options_(options) {}

keyseat::InputSpec Qwen3VlProjector::input_spec() const {
  keyseat::InputSpec spec;
  spec.merge_size = options_.get_int("spatial_merge_size");
  return spec;
}

std::vector<std::unique_ptr<keyseat::Unit>> Qwen3VlProjector::units() {
  MergerConfig config;
  config.hidden = options_.get_int("hidden_size");
  config.out_hidden = options_.get_int("out_hidden_size");
  config.merge = options_.get_int("spatial_merge_size");
  config.eps = options_.get_float("layer_norm_eps");
  config.init_std = options_.get_float("initializer_range");
  config.checkpoint_prefix = options_.get_string("checkpoint_prefix");

  std::vector<std::unique_ptr<keyseat::Unit>> units;
  const std::vector<int64_t>& indexes = options_.get_int_list("deepstack_visual_indexes");
  for (size_t j = 0; j < indexes.size(); ++j) {
    // Mergers go by place in the list, features by the order in which the tower's blocks run.
    const auto feature = std::count_if(indexes.begin(), indexes.end(),
                                       [&](int64_t other) { return other < indexes[j]; });
    MergerConfig deepstack = config;
    deepstack.name = "deepstack_merger_list." + std::to_string(j);
    deepstack.reads = "vision.tap." + std::to_string(j);
    deepstack.writes = "deepstack." + std::to_string(feature);
    deepstack.norm_after_merge = true;
    units.push_back(make_merger(deepstack));
  }
  config.name = "merger";
  config.reads = "vision.hidden";
  config.writes = "vision.merged";
  units.push_back(make_merger(config));
  return units;
}

}  // namespace keyseat_block_qwen3_vl_projector
