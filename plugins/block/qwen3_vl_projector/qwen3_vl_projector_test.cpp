#include <doctest/doctest.h>

#include "train/model_fixture.h"

using namespace keyseat;
using namespace keyseat::testing;

TEST_CASE("qwen3_vl_projector: a deepstack merger behind every tap, then the final merger") {
  const auto units = make_plugin<Block>("qwen3_vl_projector", small_projector())->units();
  REQUIRE(units.size() == 3);
  for (int j = 0; j < 2; ++j) {
    const UnitSpec& spec = units[static_cast<size_t>(j)]->spec();
    const std::string tap = "vision.tap." + std::to_string(j);
    CHECK(spec.name == "deepstack_merger_list." + std::to_string(j));
    CHECK(spec.after == tap);
    CHECK(spec.reads.at(0).name == tap);
    CHECK(spec.writes.at(0).name == "deepstack." + std::to_string(j));
    CHECK(spec.params.at(0).shape == std::vector<int64_t>{64});  // norm behind the merge
  }
  const UnitSpec& final_merger = units[2]->spec();
  CHECK(final_merger.name == "merger");
  CHECK(final_merger.after.empty());
  CHECK(final_merger.reads.at(0).name == "vision.hidden");
  CHECK(final_merger.writes.at(0).name == "vision.merged");
  CHECK(final_merger.params.at(0).shape == std::vector<int64_t>{16});  // norm before it
}

TEST_CASE("qwen3_vl_projector: features are numbered in the order of the tower's blocks") {
  Values values = small_projector();
  values["deepstack_visual_indexes"] = std::vector<int64_t>{2, 0};
  const auto units = make_plugin<Block>("qwen3_vl_projector", values)->units();
  for (int j = 0; j < 2; ++j) {
    const UnitSpec& spec = units[static_cast<size_t>(j)]->spec();
    CHECK(spec.name == "deepstack_merger_list." + std::to_string(j));
    CHECK(spec.reads.at(0).name == "vision.tap." + std::to_string(j));
    CHECK(spec.writes.at(0).name == "deepstack." + std::to_string(1 - j));
  }
}

TEST_CASE("qwen3_vl_projector: parameters by formula, and their names in a checkpoint") {
  const auto units = make_plugin<Block>("qwen3_vl_projector", small_projector())->units();
  const int64_t c = 16, d = 64, h = 20;
  for (size_t u = 0; u < units.size(); ++u) {
    int64_t parameters = 0;
    for (const ParamSpec& param : units[u]->spec().params) parameters += param.numel();
    CHECK(parameters == 2 * (u < 2 ? d : c) + d * d + d + h * d + h);
  }
  CHECK(units[1]->spec().params.at(2).checkpoint_name ==
        "model.visual.deepstack_merger_list.1.linear_fc1.weight");
  CHECK(units[2]->spec().params.at(5).checkpoint_name == "model.visual.merger.linear_fc2.bias");
}

TEST_CASE("qwen3_vl_projector: mergers are cut by the columns between their matrices, or whole") {
  for (const auto& unit : make_plugin<Block>("qwen3_vl_projector", small_projector())->units()) {
    CHECK((unit->spec().layout == Layout::kImages));
    for (const ParamSpec& param : unit->spec().params) {
      INFO(param.name);
      const int dim = param.name.starts_with("linear_fc1") ? 0
                      : param.name == "linear_fc2.weight"  ? 1
                                                           : -1;
      CHECK(param.split.dim == dim);
      if (dim < 0) continue;
      CHECK(param.split.units == 64);
      CHECK((param.split.otherwise == TensorSplit::Otherwise::kReplicateUnit));
    }
  }
}

TEST_CASE("qwen3_vl_projector: mergers stand behind the writers of their taps in the chain") {
  const Chain chain = chain_of(small_blocks());
  std::vector<std::string> order;
  for (const ChainUnit& unit : chain.units()) order.push_back(unit.name);
  CHECK(order == std::vector<std::string>{
                     "vision.patch_embed", "vision.blocks.0", "projector.deepstack_merger_list.0",
                     "vision.blocks.1", "vision.blocks.2", "projector.deepstack_merger_list.1",
                     "projector.merger", "decoder.embed_tokens", "decoder.layers.0",
                     "decoder.layers.1", "decoder.layers.2", "decoder.head"});
}

TEST_CASE("qwen3_vl_projector: one merger more than the tower has taps is an error") {
  Problems problems;
  Chain::build(small_blocks({}, {{"deepstack_visual_indexes", std::vector<int64_t>{0}}}), {},
               problems);
  REQUIRE_FALSE(problems.empty());
  CHECK(problems_text(problems).find("vision.tap.1") != std::string::npos);
  for (const Problem& problem : problems) CHECK(problem.code == Code::kC4Combination);
}

TEST_CASE("qwen3_vl_projector: widths that do not fit tower or decoder are errors of the chain") {
  for (const auto& [option, value] : std::map<std::string, int64_t>{
           {"hidden_size", 8}, {"out_hidden_size", 8}, {"spatial_merge_size", 4}}) {
    INFO(option);
    std::vector<NamedBlock> blocks = small_blocks({}, {}, {{option, value}});
    for (size_t i = 0; i < blocks.size(); ++i)
      blocks[i].where = {"m.toml", static_cast<int>(i) + 1, 1};
    Problems problems;
    Chain::build(std::move(blocks), {}, problems);
    REQUIRE_FALSE(problems.empty());
    // Both sides, each with its place: of vision and projector, or of projector and decoder.
    CHECK(problems[0].code == Code::kC4Combination);
    const int reader = option == "out_hidden_size" ? 3 : 2;
    CHECK(problems[0].where.line == reader);
    CHECK(problems[0].text().find(fmt::format(" at m.toml:{}:1)", reader - 1)) !=
          std::string::npos);
  }
}

TEST_CASE("qwen3_vl_projector: cost counts the two matrices") {
  const auto units = make_plugin<Block>("qwen3_vl_projector", small_projector())->units();
  WorkloadShape shape;
  shape.visual_tokens = 10;
  CHECK(units[2]->cost(shape).flops == doctest::Approx(2 * 10 * 64 * (64 + 20)));
}

TEST_CASE("qwen3_vl_projector: serves the published model types") {
  const auto models = load_plugin("block", "qwen3_vl_projector")->hf_models();
  REQUIRE(models.size() == 2);
  for (const HfModel& model : models) {
    CHECK(model.block_name == "projector");
    CHECK(model.order == 1);
  }
}
