// Options of the tower and how they stand in a Hugging Face config.json.
#include "qwen3_vl_vision.h"

namespace keyseat_block_qwen3_vl_vision {

using keyseat::Code;
using keyseat::HfModel;
using keyseat::Option;
using keyseat::OptionLevel;
using keyseat::OptionType;

namespace {
constexpr double kMaxSize = 1 << 24;
}

keyseat::OptionSchema Qwen3VlVision::options() {
  return {
      Option("hidden_size", OptionType::kInt)
          .required()
          .range(1, kMaxSize)
          .doc("Width of the tower."),
      Option("depth", OptionType::kInt)
          .required()
          .range(0, 1024)
          .doc("Number of transformer blocks."),
      Option("num_heads", OptionType::kInt)
          .required()
          .range(1, 4096)
          .doc("Attention heads; divides hidden_size."),
      Option("intermediate_size", OptionType::kInt)
          .required()
          .range(1, kMaxSize)
          .doc("Width of the MLP."),
      Option("patch_size", OptionType::kInt)
          .defaults_to(int64_t{16})
          .range(1, 1024)
          .unit("pixels")
          .doc("Edge of a square patch."),
      Option("temporal_patch_size", OptionType::kInt)
          .defaults_to(int64_t{2})
          .range(1, 64)
          .unit("frames")
          .doc("Frames in one patch; an image is repeated."),
      Option("spatial_merge_size", OptionType::kInt)
          .defaults_to(int64_t{2})
          .range(1, 64)
          .doc("Edge, in patches, of the block that becomes one visual token."),
      Option("in_channels", OptionType::kInt)
          .defaults_to(int64_t{3})
          .range(3, 3)
          .doc("Colour channels."),
      Option("num_position_embeddings", OptionType::kInt)
          .required()
          .range(1, kMaxSize)
          .doc("Rows of the learned position table, a square number."),
      Option("deepstack_visual_indexes", OptionType::kIntList)
          .defaults_to(std::vector<int64_t>{})
          .range(0, 1023)
          .doc("Blocks (from 0) behind which features are tapped for the decoder."),
      Option("rope_theta", OptionType::kFloat)
          .defaults_to(10000.0)
          .range(1, 1e12)
          .level(OptionLevel::kTuning)
          .doc("Base of the 2-D rotary embedding."),
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
      Option("min_pixels", OptionType::kInt)
          .defaults_to(int64_t{65536})
          .range(1, 1e12)
          .unit("pixels")
          .doc("Smaller images are enlarged to at least this area."),
      Option("max_pixels", OptionType::kInt)
          .defaults_to(int64_t{16777216})
          .range(1, 1e12)
          .unit("pixels")
          .doc("Larger images are reduced to at most this area."),
      Option("image_mean", OptionType::kFloatList)
          .defaults_to(std::vector<double>{0.5, 0.5, 0.5})
          .range(0, 1)
          .level(OptionLevel::kTuning)
          .doc("Subtracted from every channel, whose values are 0 to 1."),
      Option("image_std", OptionType::kFloatList)
          .defaults_to(std::vector<double>{0.5, 0.5, 0.5})
          .range(1e-3, 1e3)
          .level(OptionLevel::kTuning)
          .doc("Divides every channel."),
      Option("checkpoint_prefix", OptionType::kString)
          .defaults_to(std::string("model.visual."))
          .level(OptionLevel::kDeveloper)
          .doc("Begins every checkpoint name of the tower."),
  };
}

keyseat::Problems Qwen3VlVision::validate(const keyseat::Options& options) {
  keyseat::Problems problems;
  const int64_t hidden = options.get_int("hidden_size"), heads = options.get_int("num_heads");
  const int64_t depth = options.get_int("depth"),
                table = options.get_int("num_position_embeddings");
  if (hidden % heads != 0 || (hidden / heads) % 4 != 0) {
    problems.push_back(
        options.problem(Code::kC4Combination, "num_heads",
                        "hidden_size " + std::to_string(hidden) + " does not give " +
                            std::to_string(heads) + " heads of a multiple of 4",
                        "the 2-D rotary embedding splits every head into four parts"));
  }
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(table))));
  if (side * side != table) {
    problems.push_back(options.problem(
        Code::kC3Value, "num_position_embeddings",
        "num_position_embeddings " + std::to_string(table) + " is not a square number",
        "the table is a square grid"));
  }
  std::set<int64_t> seen;
  for (int64_t index : options.get_int_list("deepstack_visual_indexes")) {
    if (index >= depth || !seen.insert(index).second) {
      problems.push_back(options.problem(
          Code::kC4Combination, "deepstack_visual_indexes",
          "deepstack index " + std::to_string(index) +
              (index >= depth ? " is not a block of a tower of depth " + std::to_string(depth)
                              : std::string(" is listed twice"))));
    }
  }
  if (options.get_int("min_pixels") > options.get_int("max_pixels")) {
    problems.push_back(
        options.problem(Code::kC4Combination, "min_pixels", "min_pixels is above max_pixels"));
  }
  for (const char* name : {"image_mean", "image_std"}) {
    if (options.get_float_list(name).size() != 3) {
      problems.push_back(
          options.problem(Code::kC3Value, name, std::string(name) + " needs three values"));
    }
  }
  return problems;
}

std::vector<HfModel> Qwen3VlVision::hf_models() {
  std::vector<HfModel> models;
  for (const char* type : {"qwen3_vl_moe", "qwen3_vl"}) {
    HfModel model;
    model.model_type = type;
    model.block_name = "vision";
    model.order = 0;
    for (const char* name :
         {"hidden_size", "depth", "num_heads", "intermediate_size", "patch_size",
          "temporal_patch_size", "spatial_merge_size", "in_channels", "num_position_embeddings",
          "deepstack_visual_indexes", "initializer_range"}) {
      model.options.push_back({name, {std::string("vision_config.") + name}, {}});
    }
    model.options.push_back({"rope_theta", {"vision_config.rope_parameters.rope_theta"}, 10000.0});
    model.requirements = {
        {"vision_config.hidden_act",
         {"\"gelu_pytorch_tanh\""},
         "the tower's MLP is built with the tanh GELU"},
        {"vision_config.rope_parameters.rope_type",
         {"\"axial\"", "\"default\""},
         "the tower's rope is the 2-D one"},
    };
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace keyseat_block_qwen3_vl_vision
