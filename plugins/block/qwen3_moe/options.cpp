// Options of the decoder.
#include "qwen3_moe.h"

#include "keyseat/nn/router_options.h"

namespace keyseat_block_qwen3_moe {

using keyseat::Code;
using keyseat::Option;
using keyseat::OptionLevel;
using keyseat::OptionType;

namespace {
constexpr double kMaxSize = 1 << 24;
}

keyseat::OptionSchema Qwen3Moe::options() {
  keyseat::OptionSchema schema = {
      Option("vocab_size", OptionType::kInt)
          .required()
          .range(1, kMaxSize)
          .doc("Rows of the token embedding and head."),
      Option("hidden_size", OptionType::kInt)
          .required()
          .range(1, kMaxSize)
          .doc("Width of the decoder."),
      Option("num_hidden_layers", OptionType::kInt)
          .required()
          .range(0, 4096)
          .doc("Number of decoder layers."),
      Option("num_attention_heads", OptionType::kInt).required().range(1, 4096).doc("Query heads."),
      Option("num_key_value_heads", OptionType::kInt)
          .required()
          .range(1, 4096)
          .doc("Key and value heads; divides num_attention_heads."),
      Option("head_dim", OptionType::kInt)
          .optional()
          .range(2, 4096)
          .doc("Width of a head; hidden_size / num_attention_heads where unset."),
      Option("intermediate_size", OptionType::kInt)
          .optional()
          .range(1, kMaxSize)
          .doc("Width of the feed-forward of dense layers; required where there are any."),
      Option("moe_intermediate_size", OptionType::kInt)
          .optional()
          .range(1, kMaxSize)
          .doc("Width of one expert; required with experts."),
      Option("num_experts", OptionType::kInt)
          .defaults_to(int64_t{0})
          .range(0, 65536)
          .doc("Routed experts of a MoE layer; 0 makes every layer dense."),
      Option("num_experts_per_tok", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 65536)
          .doc("Experts a token is sent to (top-k)."),
      Option("norm_topk_prob", OptionType::kBool)
          .defaults_to(true)
          .doc("Divide the top-k weights by their sum."),
      Option("decoder_sparse_step", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 4096)
          .doc("Layer i is MoE where (i + 1) is a multiple of it."),
      Option("mlp_only_layers", OptionType::kIntList)
          .defaults_to(std::vector<int64_t>{})
          .range(0, 4095)
          .doc("Layers (from 0) that are dense whatever decoder_sparse_step says."),
      Option("rms_norm_eps", OptionType::kFloat)
          .defaults_to(1e-6)
          .range(0, 1)
          .level(OptionLevel::kTuning)
          .doc("Added to the mean square in every RMSNorm."),
      Option("rope_theta", OptionType::kFloat)
          .defaults_to(5e6)
          .range(1, 1e12)
          .doc("Base of the rotary embedding."),
      Option("mrope_section", OptionType::kIntList)
          .defaults_to(std::vector<int64_t>{})
          .range(0, 4096)
          .doc("Frequencies of the t, h and w axes (interleaved M-RoPE); empty: plain positions."),
      Option("max_position_embeddings", OptionType::kInt)
          .defaults_to(int64_t{262144})
          .range(1, 1e9)
          .unit("tokens")
          .doc("Longest sample."),
      Option("tie_word_embeddings", OptionType::kBool)
          .defaults_to(false)
          .doc("Head and token embedding are one."),
      Option("vision", OptionType::kBool)
          .defaults_to(true)
          .doc("Visual tokens replace placeholders; false makes a text-only model."),
      Option("deepstack_visual_indexes", OptionType::kIntList)
          .defaults_to(std::vector<int64_t>{})
          .range(0, 1023)
          .doc("As in the tower: feature j is added behind decoder layer j."),
      Option("image_token_id", OptionType::kInt)
          .optional()
          .range(0, kMaxSize)
          .doc("Placeholder of image tokens."),
      Option("video_token_id", OptionType::kInt)
          .optional()
          .range(0, kMaxSize)
          .doc("Placeholder of video tokens."),
      Option("vision_start_token_id", OptionType::kInt)
          .optional()
          .range(0, kMaxSize)
          .doc("Opens a visual run."),
      Option("vision_end_token_id", OptionType::kInt)
          .optional()
          .range(0, kMaxSize)
          .doc("Closes a visual run."),
      Option("initializer_range", OptionType::kFloat)
          .defaults_to(0.02)
          .range(0, 10)
          .level(OptionLevel::kTuning)
          .doc("Standard deviation of fresh matrices."),
      Option("checkpoint_prefix", OptionType::kString)
          .defaults_to(std::string("model.language_model."))
          .level(OptionLevel::kDeveloper)
          .doc("Begins the checkpoint names of the decoder."),
      Option("checkpoint_experts", OptionType::kEnum)
          .defaults_to(std::string("packed_transposed"))
          .choices({"per_expert", "packed", "packed_transposed"})
          .level(OptionLevel::kTuning)
          .doc("How experts are written to a checkpoint; reading finds out by itself."),
  };
  const keyseat::OptionSchema router = keyseat::nn::router_option_schema();
  schema.insert(schema.end(), router.begin(), router.end());
  return schema;
}

keyseat::Problems Qwen3Moe::validate(const keyseat::Options& options) {
  keyseat::Problems problems = keyseat::nn::validate_router_options(options);
  const auto integer = [&](const char* name) {
    return options.has(name) ? options.get_int(name) : 0;
  };
  const auto refuse = [&](const char* name, std::string what, std::string why = "") {
    problems.push_back(
        options.problem(Code::kC4Combination, name, std::move(what), std::move(why)));
  };
  const int64_t heads = integer("num_attention_heads"), kv_heads = integer("num_key_value_heads");
  const int64_t layers = integer("num_hidden_layers"), experts = integer("num_experts");
  if (heads % kv_heads != 0) {
    refuse("num_key_value_heads", std::to_string(heads) + " query heads cannot share " +
                                      std::to_string(kv_heads) + " key/value heads evenly");
  }
  int64_t head_dim = integer("head_dim");
  if (head_dim == 0) {
    if (integer("hidden_size") % heads != 0)
      refuse("num_attention_heads", "hidden_size is not a multiple of the heads; give head_dim");
    head_dim = integer("hidden_size") / heads;
  }
  if (head_dim % 2 != 0)
    refuse("head_dim", "head_dim " + std::to_string(head_dim) + " is odd",
           "rope turns pairs of dims");
  const auto& section = options.get_int_list("mrope_section");
  if (!section.empty()) {
    const int64_t total = std::accumulate(section.begin(), section.end(), int64_t{0});
    if (section.size() != 3 || total != head_dim / 2) {
      refuse("mrope_section", "mrope_section must be three counts with the sum head_dim / 2 = " +
                                  std::to_string(head_dim / 2) + ", not " + std::to_string(total));
    }
  }
  int64_t moe_layers = 0;
  const auto& dense = options.get_int_list("mlp_only_layers");
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool listed = std::find(dense.begin(), dense.end(), layer) != dense.end();
    if (experts > 0 && !listed && (layer + 1) % integer("decoder_sparse_step") == 0) ++moe_layers;
  }
  for (int64_t layer : dense) {
    if (layer >= layers) refuse("mlp_only_layers", "there is no layer " + std::to_string(layer));
  }
  if (moe_layers > 0 && !options.has("moe_intermediate_size")) {
    refuse("moe_intermediate_size", "moe_intermediate_size is missing: " +
                                        std::to_string(moe_layers) + " layers have experts");
  }
  if (moe_layers < layers && !options.has("intermediate_size")) {
    refuse("intermediate_size", "intermediate_size is missing: " +
                                    std::to_string(layers - moe_layers) + " layers are dense");
  }
  if (experts > 0 && integer("num_experts_per_tok") > experts) {
    refuse("num_experts_per_tok", "top-k " + std::to_string(integer("num_experts_per_tok")) +
                                      " is above the number of experts " + std::to_string(experts));
  }
  const auto deepstack =
      static_cast<int64_t>(options.get_int_list("deepstack_visual_indexes").size());
  if (deepstack > layers) {
    refuse("deepstack_visual_indexes",
           std::to_string(deepstack) +
               " deepstack features need as many decoder layers, there are " +
               std::to_string(layers));
  }
  if (options.get_bool("vision")) {
    for (const char* name : {"image_token_id", "vision_start_token_id", "vision_end_token_id"}) {
      if (!options.has(name))
        refuse(name, std::string(name) + " is missing",
               "vision = true replaces placeholder tokens");
    }
  } else if (deepstack > 0) {
    refuse("vision", "deepstack features need vision = true");
  }
  for (const char* name :
       {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"}) {
    if (options.has(name) && options.get_int(name) >= integer("vocab_size")) {
      refuse(name, std::string(name) + " " + std::to_string(options.get_int(name)) +
                       " is outside of the vocabulary of " + std::to_string(integer("vocab_size")));
    }
  }
  return problems;
}

}  // namespace keyseat_block_qwen3_moe
