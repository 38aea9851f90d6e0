// How the decoder stands in a Hugging Face config.json, in the published and in the transformers 5
// spelling.
#include "qwen3_moe.h"

namespace keyseat_block_qwen3_moe {

using keyseat::HfModel;

namespace {

// Multimodal files keep the decoder under "text_config.".
HfModel decoder_model(const std::string& type, const std::string& text, bool vision, bool moe) {
  HfModel model;
  model.model_type = type;
  model.block_name = "decoder";
  model.order = 2;
  const auto same = [&](const char* name) { model.options.push_back({name, {text + name}, {}}); };
  for (const char* name : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                           "num_key_value_heads", "head_dim", "intermediate_size", "rms_norm_eps",
                           "max_position_embeddings", "initializer_range"}) {
    same(name);
  }
  model.options.push_back(
      {"rope_theta",
       {text + "rope_parameters.rope_theta", text + "rope_theta", text + "rope_scaling.rope_theta"},
       vision ? 5e5 : 1e4});
  model.options.push_back(
      {"tie_word_embeddings", {"tie_word_embeddings", text + "tie_word_embeddings"}, false});
  model.options.push_back({"vision", {}, vision});
  if (moe) {
    for (const char* name : {"moe_intermediate_size", "num_experts_per_tok", "decoder_sparse_step",
                             "mlp_only_layers"}) {
      same(name);
    }
    model.options.push_back(
        {"num_experts", {text + "num_experts", text + "num_local_experts"}, {}});
    // Qwen3-VL-MoE always renormalises and ignores the key.
    model.options.push_back(vision
                                ? keyseat::HfOption{"norm_topk_prob", {}, true}
                                : keyseat::HfOption{"norm_topk_prob", {"norm_topk_prob"}, false});
  } else {
    model.options.push_back({"num_experts", {}, int64_t{0}});
  }
  if (vision) {
    model.options.push_back(
        {"mrope_section",
         {text + "rope_parameters.mrope_section", text + "rope_scaling.mrope_section"},
         std::vector<int64_t>{24, 20, 20}});
    model.options.push_back(
        {"deepstack_visual_indexes", {"vision_config.deepstack_visual_indexes"}, {}});
    for (const char* name :
         {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"}) {
      model.options.push_back({name, {name}, {}});
    }
    model.options.push_back({"checkpoint_experts", {}, std::string("packed_transposed")});
  } else {
    model.options.push_back({"checkpoint_prefix", {}, std::string("model.")});
    model.options.push_back({"checkpoint_experts", {}, std::string("per_expert")});
  }
  model.requirements = {
      {text + "hidden_act", {"\"silu\""}, "the feed-forward is built as SwiGLU"},
      {text + "attention_bias", {"false", "null"}, "projections are built without bias"},
      {text + "attention_dropout", {"0", "0.0", "null"}, "dropout is not built"},
      {text + "sliding_window", {"null"}, "attention is built without a window"},
      {text + "use_sliding_window", {"false", "null"}, "attention is built without a window"},
      {text + "rope_parameters.rope_type", {"\"default\""}, "rope is built without scaling"},
      {text + "rope_scaling.rope_type", {"\"default\""}, "rope is built without scaling"},
      {text + "rope_scaling.type", {"\"default\"", "\"mrope\""}, "rope is built without scaling"},
      {text + "rope_parameters.mrope_interleaved", {"true"}, "M-RoPE is built interleaved"},
      {text + "rope_scaling.mrope_interleaved", {"true"}, "M-RoPE is built interleaved"},
  };
  return model;
}

}  // namespace

std::vector<HfModel> Qwen3Moe::hf_models() {
  return {
      decoder_model("qwen3_vl_moe", "text_config.", true, true),
      decoder_model("qwen3_vl", "text_config.", true, false),
      decoder_model("qwen3_moe", "", false, true),
      decoder_model("qwen3", "", false, false),
  };
}

}  // namespace keyseat_block_qwen3_moe
