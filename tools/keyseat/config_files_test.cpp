// The committed configurations and the Hugging Face fixtures, against the real plugins.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "config/hf_config.h"
#include "keyseat/config.h"
#include "plugin/config_plugins.h"
#include "plugin/files/find.h"

namespace keyseat::tool {
namespace {

using Json = nlohmann::json;

// The values without their origins.
Json values(const Json& json) {
  if (json.is_object() && json.contains("origin")) return json["value"];
  Json out = json;
  for (auto& item : out) {
    if (item.is_structured()) item = values(item);
  }
  return out;
}

std::vector<std::filesystem::path> files(const std::string& folder, const std::string& extension) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == extension) found.push_back(entry.path());
  }
  return found;
}

std::vector<HfPlugin> block_maps() {
  Registry registry(make_plugin_search({}));
  Problems problems;
  std::vector<HfPlugin> maps;
  for (const FoundFile& found : find_all(registry.search(), problems)) {
    if (found.id.kind != "block") continue;
    const auto plugin = registry.load("block", found.id.name, problems);
    if (plugin != nullptr) maps.push_back({found.id.name, plugin->hf_models()});
  }
  INFO(problems_text(problems));
  CHECK(problems.empty());
  return maps;
}

TEST_CASE("config files: every run of configs/runs resolves, prints and loads again") {
  const auto printed = std::filesystem::temp_directory_path() / "keyseat-printed.toml";
  for (const auto& file : files("configs/runs", ".toml")) {
    ConfigPlugins plugins;
    const auto first = resolve_config({.file = file.string()}, plugins);
    INFO(file.string() << "\n" << problems_text(first.problems));
    REQUIRE(first.ok());
    CHECK(first.notes.empty());
    std::ofstream(printed) << config_toml(first.config);
    const auto second = resolve_config({.file = printed.string()}, plugins);
    INFO(problems_text(second.problems));
    REQUIRE(second.ok());
    CHECK(values(Json::parse(config_json(first.config))) ==
          values(Json::parse(config_json(second.config))));
  }
  std::filesystem::remove(printed);
}

TEST_CASE("config files: a syntax error ends a command with the status of family C") {
  const auto build = std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
  const auto broken = std::filesystem::temp_directory_path() / "keyseat-broken.toml";
  std::ofstream(broken) << "[run\n";
  const std::string command =
      "'" + (build / "bin" / "keyseat").string() + "' config '" + broken.string() + "' 2>/dev/null";
  const int status = std::system(command.c_str());
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == exit_status(Code::kC1Syntax));
  std::filesystem::remove(broken);
}

TEST_CASE("config files: config.json in both spellings resolves to one model") {
  const auto maps = block_maps();
  std::map<std::string, Json> models;
  for (const auto& file : files("tests/fixtures/hf_config", ".json")) {
    std::ifstream stream(file, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    HfBlocks model = blocks_from_hf(text, file.string(), maps);
    INFO(file.string() << "\n" << problems_text(model.problems));
    REQUIRE(model.problems.empty());
    ConfigPlugins plugins;
    const auto resolved =
        resolve_config({.blocks = std::move(model.blocks), .use = ConfigUse::kModel}, plugins);
    INFO(problems_text(resolved.problems));
    REQUIRE(resolved.ok());
    const std::string name = file.stem().stem().string();
    const Json blocks = values(Json::parse(config_json(resolved.config)))["model"]["blocks"];
    const auto [other, is_first] = models.emplace(name, blocks);
    if (!is_first) CHECK(other->second == blocks);
  }
  CHECK(models.size() == 7);
}

}  // namespace
}  // namespace keyseat::tool
