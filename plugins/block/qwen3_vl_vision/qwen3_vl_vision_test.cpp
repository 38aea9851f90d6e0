#include <doctest/doctest.h>

#include "train/model_fixture.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

Problems problems_with(const Values& changes) {
  return problems_of("block", "qwen3_vl_vision", with(small_vision(), changes));
}

std::vector<std::string> names(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("qwen3_vl_vision: patch embedding, then one unit per block, taps where asked") {
  const auto block = make_plugin<Block>("qwen3_vl_vision", small_vision());
  const auto units = block->units();
  REQUIRE(units.size() == 4);
  const UnitSpec& embed = units[0]->spec();
  CHECK(embed.name == "patch_embed");
  CHECK(names(embed.reads) == Names{"patches", "vision.position.index", "vision.position.weight"});
  CHECK(names(embed.writes) == Names{"vision.hidden"});
  for (int layer = 0; layer < 3; ++layer) {
    const UnitSpec& spec = units[static_cast<size_t>(layer) + 1]->spec();
    CHECK(spec.name == "blocks." + std::to_string(layer));
    CHECK((spec.rows == DimSymbol::kP));
    CHECK(names(spec.reads) == Names{"vision.hidden", "vision.rope.cos", "vision.rope.sin"});
    const Names taps[] = {
        {"vision.hidden", "vision.tap.0"}, {"vision.hidden"}, {"vision.hidden", "vision.tap.1"}};
    CHECK(names(spec.writes) == taps[layer]);
  }
}

TEST_CASE("qwen3_vl_vision: parameters by formula, and their names in a checkpoint") {
  const auto units = make_plugin<Block>("qwen3_vl_vision", small_vision())->units();
  int64_t parameters = 0;
  for (const auto& unit : units)
    for (const ParamSpec& param : unit->spec().params) parameters += param.numel();
  const int64_t c = 16, f = 24, elements = 3 * 2 * 4 * 4, table = 16;
  const int64_t layer = 4 * c + (3 * c * c + 3 * c) + (c * c + c) + (2 * c * f + f + c);
  CHECK(parameters == c * elements + c + table * c + 3 * layer);

  const ParamSpec& kernel = units[0]->spec().params[0];
  CHECK(kernel.checkpoint_name == "model.visual.patch_embed.proj.weight");
  CHECK(kernel.checkpoint_shape == std::vector<int64_t>{16, 3, 2, 4, 4});
  const ParamSpec& qkv = units[2]->spec().params[2];
  CHECK(qkv.checkpoint_name == "model.visual.blocks.1.attn.qkv.weight");
  CHECK(qkv.parts == std::vector<int64_t>{16, 16, 16});
  CHECK((qkv.role == ParamRole::kMatrix));
}

TEST_CASE("qwen3_vl_vision: blocks are cut by heads and columns, or whole") {
  const std::map<std::string, std::pair<int, int64_t>> expected{
      {"attn.qkv.weight", {0, 2}},      {"attn.qkv.bias", {0, 2}},
      {"attn.proj.weight", {1, 2}},     {"mlp.linear_fc1.weight", {0, 24}},
      {"mlp.linear_fc1.bias", {0, 24}}, {"mlp.linear_fc2.weight", {1, 24}}};
  const auto units = make_plugin<Block>("qwen3_vl_vision", small_vision())->units();
  for (const auto& unit : units) CHECK((unit->spec().layout == Layout::kImages));
  size_t cut = 0;
  for (const ParamSpec& param : units[2]->spec().params) {
    INFO(param.name);
    const auto found = expected.find(param.name);
    CHECK((param.split.dim >= 0) == (found != expected.end()));
    if (found == expected.end()) continue;
    ++cut;
    CHECK(param.split.dim == found->second.first);
    CHECK(param.split.units == found->second.second);
    CHECK((param.split.otherwise == TensorSplit::Otherwise::kReplicateUnit));
  }
  CHECK(cut == expected.size());
  for (const ParamSpec& param : units[0]->spec().params) CHECK(param.split.dim == -1);
}

TEST_CASE("qwen3_vl_vision: asks the data source for its patches") {
  const auto block = make_plugin<Block>("qwen3_vl_vision", small_vision());
  const InputSpec input = block->input_spec();
  CHECK(input.patch_size == 4);
  CHECK(input.temporal_patch_size == 2);
  CHECK(input.merge_size == 2);
  CHECK(input.min_pixels == 64);
  CHECK(input.vocab_size == 0);
  CHECK(block->derived().size() == 4);
}

TEST_CASE("qwen3_vl_vision: cost grows with patches, attention with the frames' squares") {
  const auto units = make_plugin<Block>("qwen3_vl_vision", small_vision())->units();
  WorkloadShape shape;
  shape.patches = 32;
  shape.frame_squares = 2 * 16 * 16;
  const double gemm = 2 * 32.0 * (4 * 16 * 16 + 2 * 16 * 24);
  CHECK(units[1]->cost(shape).flops == doctest::Approx(gemm + 4 * 16 * 512));
  CHECK(units[1]->cost({}).flops == 0);
}

TEST_CASE("qwen3_vl_vision: values that do not fit each other") {
  CHECK(problems_with({}).empty());
  check_problem(problems_with({{"num_heads", int64_t{3}}}), Code::kC4Combination,
                "hidden_size 16 does not give 3 heads of a multiple of 4");
  check_problem(problems_with({{"num_heads", int64_t{8}}}), Code::kC4Combination,
                "splits every head into four parts");
  check_problem(problems_with({{"num_position_embeddings", int64_t{15}}}), Code::kC3Value,
                "15 is not a square number");
  check_problem(problems_with({{"deepstack_visual_indexes", std::vector<int64_t>{3}}}),
                Code::kC4Combination, "deepstack index 3 is not a block of a tower of depth 3");
  check_problem(problems_with({{"deepstack_visual_indexes", std::vector<int64_t>{1, 1}}}),
                Code::kC4Combination, "deepstack index 1 is listed twice");
  check_problem(problems_with({{"min_pixels", int64_t{1 << 30}}}), Code::kC4Combination,
                "min_pixels is above max_pixels");
  check_problem(problems_with({{"image_mean", std::vector<double>{0.5}}}), Code::kC3Value,
                "image_mean needs three values");
  check_problem(problems_with({{"image_std", std::vector<double>{0.5, 0.5, 0.0}}}), Code::kC3Value,
                "\"image_std\" must be a list of finite numbers from 0.001");
  CHECK(problems_with({{"hiden_size", int64_t{4}}}).at(0).code == Code::kC2Unknown);
}

TEST_CASE("qwen3_vl_vision: serves the published model types") {
  const auto models = load_plugin("block", "qwen3_vl_vision")->hf_models();
  REQUIRE(models.size() == 2);
  for (const HfModel& model : models) {
    CHECK(model.block_name == "vision");
    CHECK(model.order == 0);
    CHECK(model.requirements.size() == 2);
  }
  CHECK(models[0].model_type == "qwen3_vl_moe");
  CHECK(models[1].model_type == "qwen3_vl");
}
