// Not a test itself: what config/testing.h declares.
#include "config/testing.h"

#include <fstream>
#include <random>
#include <vector>

namespace keyseat::testing {
namespace {

Problems even_heads(const Options& options) {
  if (options.get_int("hidden") % options.get_int("heads") == 0) return {};
  return {options.problem(Code::kC4Combination, "heads", "does not divide hidden")};
}

}  // namespace

FakeSchemas::FakeSchemas() {
  using T = OptionType;
  schemas_["block/tower"] = {
      {Option("hidden", T::kInt).required().range(1, 4096).doc("Width."),
       Option("heads", T::kInt).defaults_to(int64_t{2}).range(1, 64).doc("Heads."),
       Option("taps", T::kIntList).defaults_to(std::vector<int64_t>{}).range(0, 100).doc("Taps.")},
      even_heads};
  schemas_["block/decoder"] = {
      {Option("hidden", T::kInt).required().range(1, 4096).doc("Width."),
       Option("eps", T::kFloat).defaults_to(1e-6).range(0, 1).doc("Epsilon."),
       Option("layout", T::kEnum).choices({"packed", "split"}).defaults_to("packed").doc("Layout."),
       Option("tie", T::kBool).defaults_to(false).old_name("tied").doc("Tied.")},
      {}};
  schemas_["strategy/single"] = {{}, {}};
  schemas_["strategy/sharded"] = {
      {Option("shard", T::kInt).required().at_least(1).doc("Ranks."),
       Option("min_bytes", T::kSize).defaults_to("64MiB").at_least(0).doc("Bytes.")},
      {}};
  schemas_["dispatcher/local"] = {
      {Option("virtual_ranks", T::kInt).defaults_to(int64_t{1}).at_least(1).doc("Ranks.")}, {}};
  schemas_["recompute/none"] = {{}, {}};
  schemas_["comm/self"] = {{}, {}};
  schemas_["data/folder"] = {
      {Option("path", T::kPath).required().doc("Folder."),
       Option("more", T::kPathList).defaults_to(std::vector<std::string>{}).doc("Folders."),
       Option("micro_batch_size", T::kInt).optional().at_least(1).doc("Samples."),
       Option("weights", T::kFloatList).defaults_to(std::vector<double>{}).doc("Weights."),
       Option("blank", T::kBool).defaults_to(false).doc("Blank.")},
      {}};
  schemas_["data/mock"] = {
      {Option("tokens", T::kInt).defaults_to(int64_t{8}).at_least(1).doc("Tokens.")}, {}};
  schemas_["optimizer/adamw"] = {
      {Option("lr", T::kFloat).defaults_to(1e-3).range(0, 10).doc("Rate."),
       Option("label", T::kString).optional().doc("Text.")},
      {}};
}

Problems FakeSchemas::open(const PluginFolders& folders) {
  opened = folders;
  return {};
}

const PluginSchema* FakeSchemas::find(const std::string& kind, const std::string& name,
                                      Problems& problems) {
  const auto found = schemas_.find(kind + "/" + name);
  if (found != schemas_.end()) return &found->second;
  problems.push_back({Code::kP1NotFound, {}, "no plugin " + kind + "/" + name, "", ""});
  return nullptr;
}

ScratchFolder::ScratchFolder() {
  static std::mt19937_64 random(std::random_device{}());
  folder_ = std::filesystem::temp_directory_path() / ("keyseat-" + std::to_string(random()));
  std::filesystem::create_directories(folder_);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string ScratchFolder::path(const std::string& name) const { return (folder_ / name).string(); }

std::string ScratchFolder::write(const std::string& name, const std::string& text) const {
  const auto file = folder_ / name;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
  return file.string();
}

const char* complete_config() {
  return R"([run]
name = "small"
steps = 10

[[model.blocks]]
name = "vision"
plugin = "tower"
[model.blocks.options]
hidden = 8
taps = [0, 2]

[[model.blocks]]
name = "decoder"
plugin = "decoder"
options = { hidden = 16, eps = 1 }

[data]
plugin = "folder"
[data.options]
path = "images"
)";
}

std::string places(const Problems& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    const bool is_file = problem.where.file.starts_with("/");
    if (!text.empty()) text += ", ";
    text += code_name(problem.code);
    text += " " + (is_file ? std::filesystem::path(problem.where.file).filename().string()
                           : problem.where.file);
    if (problem.where.line > 0) {
      text += ":" + std::to_string(problem.where.line) + ":" + std::to_string(problem.where.column);
    }
  }
  return text;
}

ResolvedConfig resolve(const ConfigRequest& request) {
  FakeSchemas schemas;
  return resolve_config(request, schemas);
}

}  // namespace keyseat::testing
