// config.json to blocks, on the configurations of tests/fixtures in both spellings.
#include "config/hf_config.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace keyseat {
namespace {

std::string fixture(const std::string& name) {
  std::ifstream stream("tests/fixtures/hf_config/" + name + ".json", std::ios::binary);
  REQUIRE(stream.good());
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

// A decoder as a plugin would map it: two spellings, a constant, a value of its own where absent.
HfModel decoder(const std::string& type, const std::string& text, bool vision) {
  HfModel model;
  model.model_type = type;
  model.block_name = "decoder";
  model.order = 2;
  model.options = {
      {"hidden_size", {text + "hidden_size"}, {}},
      {"num_experts", {text + "num_experts", text + "num_local_experts"}, int64_t{0}},
      {"rope_theta", {text + "rope_parameters.rope_theta", text + "rope_theta"}, 1e4},
      {"mrope_section",
       {text + "rope_parameters.mrope_section", text + "rope_scaling.mrope_section"},
       std::vector<int64_t>()},
      {"mlp_only_layers", {text + "mlp_only_layers"}, {}},
      {"tie", {"tie_word_embeddings"}, false},
      {"window", {text + "sliding_window"}, {}},
      {"vision", {}, vision},
  };
  model.requirements = {{text + "hidden_act", {"\"silu\""}, "it is built so"},
                        {text + "sliding_window", {"null"}, "there is no window"}};
  return model;
}

HfModel tower(const std::string& type) {
  HfModel model;
  model.model_type = type;
  model.block_name = "vision";
  model.options = {{"depth", {"vision_config.depth"}, {}},
                   {"taps", {"vision_config.deepstack_visual_indexes"}, {}}};
  return model;
}

std::vector<HfPlugin> plugins() {
  return {{"decoder_plugin",
           {decoder("qwen3_vl_moe", "text_config.", true),
            decoder("qwen3_vl", "text_config.", true), decoder("qwen3_moe", "", false)}},
          {"tower_plugin", {tower("qwen3_vl_moe"), tower("qwen3_vl")}}};
}

HfBlocks read(const std::string& name) { return blocks_from_hf(fixture(name), name, plugins()); }

TEST_CASE("hf_config: both spellings give the same blocks") {
  for (const char* name : {"qwen3_vl_moe", "qwen3_vl_moe_mixed", "qwen3_vl_dense", "qwen3_moe",
                           "qwen3_moe_sparse_step"}) {
    const HfBlocks now = read(name), published = read(std::string(name) + ".published");
    INFO(name << "\n" << problems_text(now.problems) << problems_text(published.problems));
    CHECK(now.problems.empty());
    CHECK(published.problems.empty());
    REQUIRE(now.blocks.size() == published.blocks.size());
    for (size_t i = 0; i < now.blocks.size(); ++i) {
      CHECK(now.blocks[i].name == published.blocks[i].name);
      CHECK(now.blocks[i].plugin == published.blocks[i].plugin);
      CHECK((now.blocks[i].options == published.blocks[i].options));
    }
  }
}

TEST_CASE("hf_config: values, order, constants and what stays out") {
  const HfBlocks model = read("qwen3_vl_moe");
  CHECK(model.model_type == "qwen3_vl_moe");
  REQUIRE(model.blocks.size() == 2);
  CHECK(model.blocks[0].name == "vision");
  CHECK(model.blocks[0].options.at("taps") == OptionValue(std::vector<int64_t>{0, 2}));
  const auto& options = model.blocks[1].options;
  CHECK(options.at("hidden_size") == OptionValue(int64_t{64}));
  CHECK(options.at("num_experts") == OptionValue(int64_t{8}));
  CHECK(options.at("rope_theta") == OptionValue(5e6));
  CHECK(options.at("mrope_section") == OptionValue(std::vector<int64_t>{4, 4, 4}));
  CHECK(options.at("vision") == OptionValue(true));
  CHECK_FALSE(options.contains("window"));  // null is absent
  const auto sparse = read("qwen3_moe_sparse_step").blocks.at(0).options;
  CHECK(sparse.at("mlp_only_layers") == OptionValue(std::vector<int64_t>{1}));
  CHECK(sparse.at("tie") == OptionValue(true));
  CHECK(read("qwen3_vl_dense").blocks.at(1).options.at("num_experts") == OptionValue(int64_t{0}));
}

TEST_CASE("hf_config: what cannot be built is refused with its reason") {
  auto problem = [](const std::string& json, std::vector<HfPlugin> served = plugins()) {
    const auto problems = blocks_from_hf(json, "config.json", served).problems;
    REQUIRE(problems.size() == 1);
    return problems[0];
  };
  CHECK(problem("{\"a\": 1,\n  \"b\": }").code == Code::kR6Data);
  CHECK(problem("{\"a\": 1,\n  \"b\": }").where.line == 2);
  CHECK(problem("[1]").code == Code::kR6Data);
  CHECK(problem("{\"model_type\": 3}").code == Code::kR6Data);
  CHECK(problem("{\"model_type\": \"qwen3_mo\"}").text().find("Did you mean \"qwen3_moe\"?") !=
        std::string::npos);
  CHECK(problem(R"({"model_type": "qwen3_moe", "hidden_act": "gelu"})").text() ==
        "config.json: C4 hidden_act is \"gelu\"; the plugin block/decoder_plugin builds \"silu\" "
        "only. it is built so. Use another plugin for this model");
  CHECK(problem(R"({"model_type": "qwen3_moe", "sliding_window": 4096})").code ==
        Code::kC4Combination);
  CHECK(problem(R"({"model_type": "qwen3_moe", "hidden_size": {"a": 1}})").code == Code::kC3Value);
  CHECK(problem(R"({"model_type": "qwen3_moe", "mlp_only_layers": [1, "a"]})").code ==
        Code::kC3Value);
  CHECK(problem(R"({"model_type": "qwen3_moe", "hidden_size": 18446744073709551615})").code ==
        Code::kC3Value);
  auto twice = plugins();
  twice.push_back({"other", {decoder("qwen3_moe", "", false)}});
  CHECK(problem(R"({"model_type": "qwen3_moe"})", twice).code == Code::kP7Conflict);
}

}  // namespace
}  // namespace keyseat
