#include "qwen3_moe.h"

#include "keyseat/nn/rope.h"
#include "keyseat/nn/router_options.h"

namespace keyseat_block_qwen3_moe {

using keyseat::DerivedSpec;
using keyseat::DimSymbol;
using keyseat::Layout;
using keyseat::RowFacts;
using keyseat::Tensors;

bool DecoderConfig::is_moe(int64_t layer) const {
  const bool listed =
      std::find(mlp_only_layers.begin(), mlp_only_layers.end(), layer) != mlp_only_layers.end();
  return experts > 0 && !listed && (layer + 1) % sparse_step == 0;
}

std::vector<int64_t> DecoderConfig::moe_layers() const {
  std::vector<int64_t> found;
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (is_moe(layer)) found.push_back(layer);
  }
  return found;
}

Qwen3Moe::Qwen3Moe(const keyseat::Options& options, const keyseat::PluginHost&) {
  const auto optional = [&](const char* name, int64_t otherwise) {
    return options.has(name) ? options.get_int(name) : otherwise;
  };
  config_.vocab = options.get_int("vocab_size");
  config_.hidden = options.get_int("hidden_size");
  config_.layers = options.get_int("num_hidden_layers");
  config_.heads = options.get_int("num_attention_heads");
  config_.kv_heads = options.get_int("num_key_value_heads");
  config_.head_dim = optional("head_dim", config_.hidden / config_.heads);
  config_.dense_width = optional("intermediate_size", 0);
  config_.expert_width = optional("moe_intermediate_size", 0);
  config_.experts = options.get_int("num_experts");
  config_.router.top_k = options.get_int("num_experts_per_tok");
  config_.sparse_step = options.get_int("decoder_sparse_step");
  config_.mlp_only_layers = options.get_int_list("mlp_only_layers");
  config_.mrope_section = options.get_int_list("mrope_section");
  config_.deepstack = static_cast<int64_t>(options.get_int_list("deepstack_visual_indexes").size());
  config_.router.renormalise = options.get_bool("norm_topk_prob");
  keyseat::nn::read_router_options(options, config_.router);
  config_.tied = options.get_bool("tie_word_embeddings");
  config_.vision = options.get_bool("vision");
  config_.eps = options.get_float("rms_norm_eps");
  config_.rope_theta = options.get_float("rope_theta");
  config_.init_std = options.get_float("initializer_range");
  config_.checkpoint_prefix = options.get_string("checkpoint_prefix");
  config_.expert_layout = options.get_string("checkpoint_experts");

  input_.vocab_size = config_.vocab;
  input_.image_token_id = optional("image_token_id", -1);
  input_.video_token_id = optional("video_token_id", -1);
  input_.vision_start_token_id = optional("vision_start_token_id", -1);
  input_.vision_end_token_id = optional("vision_end_token_id", -1);
  input_.position_rule = config_.mrope_section.empty() ? "plain" : "mrope";
  input_.max_positions = options.get_int("max_position_embeddings");
}

std::vector<std::unique_ptr<keyseat::Unit>> Qwen3Moe::units() {
  std::vector<std::unique_ptr<keyseat::Unit>> units;
  units.push_back(make_embedding(config_));
  for (int64_t layer = 0; layer < config_.layers; ++layer)
    units.push_back(make_layer(config_, layer));
  units.push_back(make_head(config_));
  return units;
}

std::vector<DerivedSpec> Qwen3Moe::derived() {
  const DecoderConfig config = config_;
  const auto table = [config](const Tensors& batch, bool cosine) {
    const auto tables = keyseat::nn::mrope_tables(batch.at("position_ids"), config.head_dim,
                                                  config.rope_theta, config.mrope_section);
    return cosine ? tables.cos : tables.sin;
  };
  const auto spec = [&](const char* name) {
    return keyseat::TensorSpec{
        name, {DimSymbol::kT, config.head_dim / 2}, at::kFloat, false, Layout::kContextRows, {}};
  };
  return {
      {spec("rope.cos"),
       {"position_ids"},
       [table](const Tensors& batch, const RowFacts&) { return table(batch, true); }},
      {spec("rope.sin"),
       {"position_ids"},
       [table](const Tensors& batch, const RowFacts&) { return table(batch, false); }},
  };
}

keyseat::InputSpec Qwen3Moe::input_spec() const { return input_; }

keyseat::ParamSpec& add_param(keyseat::UnitSpec& spec, const std::string& prefix,
                              const std::string& name, std::vector<int64_t> shape,
                              keyseat::ParamRole role, const DecoderConfig& config) {
  keyseat::ParamSpec param;
  param.name = name;
  param.shape = std::move(shape);
  param.role = role;
  param.init = role == keyseat::ParamRole::kNorm
                   ? keyseat::Init{keyseat::Init::Kind::kOnes, 0}
                   : keyseat::Init{keyseat::Init::Kind::kNormal, config.init_std};
  param.checkpoint_name = prefix + name;
  spec.params.push_back(std::move(param));
  return spec.params.back();
}

keyseat::TensorSplit vocabulary_split(const DecoderConfig& config) {
  return {0, config.vocab, keyseat::TensorSplit::Otherwise::kUneven};
}

}  // namespace keyseat_block_qwen3_moe
