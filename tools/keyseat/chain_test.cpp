// keyseat chain: the published models at their real size, on meta tensors.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using Json = nlohmann::json;

struct Result {
  int status = 0;
  std::string output;
};

// `stderr_to`: "/dev/null", or "&1" for errors behind the output.
Result run(const std::string& arguments, const std::string& stderr_to = "&1") {
  const auto command = std::filesystem::canonical("/proc/self/exe").parent_path() / "keyseat";
  const std::string line = "'" + command.string() + "' chain " + arguments + " 2>" + stderr_to;
  FILE* const pipe = popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Result result;
  std::array<char, 4096> buffer{};
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.output.append(buffer.data(), count);
  }
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

Json chain_of(const std::string& arguments) {
  const Result result = run(arguments + " --json --set run.precision=bf16", "/dev/null");
  INFO(result.output);
  REQUIRE(result.status == 0);
  return Json::parse(result.output);
}

Json block(const Json& chain, const std::string& name) {
  for (const Json& block : chain["blocks"]) {
    if (block["name"] == name) return block;
  }
  FAIL("no block " << name);
  return {};
}

// Parameters as transformers counts them on the meta device.
struct Published {
  std::string name;
  int64_t parameters, experts, tower, active_text;
  int layers;
};

const Published kPublished[] = {
    {"qwen3_vl_30b_a3b", 31'070'754'032, 28'991'029'248, 538'631'408, 3'353'032'704, 48},
    {"qwen3_vl_235b_a22b", 235'670'022'896, 227'096'395'776, 576'388'336, 22'190'763'520, 94},
};

}  // namespace

TEST_CASE("chain: published models at their real size, from config.json and from TOML") {
  for (const Published& model : kPublished) {
    CAPTURE(model.name);
    const std::string row = " --tokens 300 --visual-tokens 96";
    const Json chain = chain_of("tests/fixtures/hf_config/" + model.name + ".published.json" + row);
    CHECK(chain["parameters"] == model.parameters);
    CHECK(chain["expert_parameters"] == model.experts);
    const Json vision = block(chain, "vision"), projector = block(chain, "projector"),
               decoder = block(chain, "decoder");
    CHECK(vision["parameters"].get<int64_t>() + projector["parameters"].get<int64_t>() ==
          model.tower);
    CHECK(decoder["active_parameters"] == model.active_text);
    CHECK(decoder["units"].size() == static_cast<size_t>(model.layers + 2));
    CHECK(vision["units"].size() == 28);
    CHECK(projector["units"].size() == 4);
    // What crosses a cut in the middle of the decoder: hidden in bf16 and the router statistics.
    CHECK(decoder["units"][10]["live_bytes_before"].get<int64_t>() > 300 * 2 * 2048);

    const Json from_toml = chain_of("configs/models/" + model.name + ".toml" + row);
    CHECK(from_toml["blocks"] == chain["blocks"]);
    CHECK(from_toml["memory_bytes"] == chain["memory_bytes"]);
    // Masters in fp32 and copies in bf16 of every parameter.
    CHECK(chain["memory_bytes"]["parameters"].get<double>() ==
          6.0 * static_cast<double>(model.parameters));
  }
}

TEST_CASE("chain: text names the units, what is frozen and what runs again") {
  const Result result =
      run("configs/models/qwen3_vl_moe_tiny.toml --tokens 64 --visual-tokens 16 --units "
          "--set 'model.freeze=[\"vision\"]' --set recompute.plugin=full");
  INFO(result.output);
  CHECK(result.status == 0);
  for (const char* part : {"frozen", "layers.3", "runs again", "recompute full",
                           "dry run: forward and backward on meta tensors passed"}) {
    CAPTURE(part);
    CHECK(result.output.find(part) != std::string::npos);
  }
  const Json chain = chain_of(
      "configs/models/qwen3_vl_moe_tiny.toml --set 'model.freeze=[\"vision\"]' "
      "--set recompute.plugin=full --tokens 64");
  for (const Json& part : chain["blocks"]) {
    for (const Json& unit : part["units"]) {
      const bool expected = part["name"] != "vision" && unit["name"] != "head";
      CAPTURE(unit.dump());
      CHECK(unit["runs_again"] == expected);
    }
  }
}

TEST_CASE("chain: what does not fit is refused with a code") {
  const std::string model = "configs/models/qwen3_vl_moe_tiny.toml";
  const Result full_of_images = run(model + " --tokens 16 --visual-tokens 16");
  CHECK(full_of_images.status != 0);
  CHECK(full_of_images.output.find("C4 a row of 16 tokens cannot hold 16 visual ones and text") !=
        std::string::npos);
  // Facts that two blocks share, and where each of them has its own.
  const std::pair<std::string, std::string> disagreements[] = {
      {"projector.options.out_hidden_size=64", "reads \"vision.merged\" as "},
      {"projector.options.hidden_size=64", "reads \"vision.hidden\" as "},
      {"projector.options.spatial_merge_size=4", "works with merge_size = 4, but block vision"},
      {"vision.options.spatial_merge_size=4", "works with merge_size = 2, but block vision"},
      {"projector.options.deepstack_visual_indexes=[0]", "reads \"deepstack.1\", which nothing"},
      {"vision.options.deepstack_visual_indexes=[0]",
       "is anchored after \"vision.tap.1\", which no unit writes"},
      {"decoder.options.deepstack_visual_indexes=[0]",
       "writes \"deepstack.1\", which nothing behind it reads"},
      {"decoder.options.vision=false", "writes \"vision.merged\", which nothing behind it reads"}};
  for (const auto& [set, text] : disagreements) {
    CAPTURE(set);
    std::string arguments = model + " --set 'model.blocks." + set + "'";
    if (set == "decoder.options.vision=false")
      arguments += " --set 'model.blocks.decoder.options.deepstack_visual_indexes=[]'";
    const Result result = run(arguments);
    CAPTURE(result.output);
    CHECK(result.status == 2);
    CHECK(result.output.find(": C4 ") != std::string::npos);
    CHECK(result.output.find(text) != std::string::npos);
  }
}
