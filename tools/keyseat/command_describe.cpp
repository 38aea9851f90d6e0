// keyseat describe KIND/NAME: what a plugin is and which options it takes. `describe core`: the
// core's own keys. `describe --docs DIR`: the option reference of all of them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "keyseat/config.h"
#include "keyseat/registry.h"
#include "plugin/files/find.h"
#include "tools/keyseat/command_line.h"
#include "tools/keyseat/describe_options.h"
#include "tools/keyseat/option_pages.h"
#include "tools/keyseat/tool_commands.h"

namespace keyseat::tool {
namespace {

// Where the options of a kind stand in a config.
std::string options_table(const std::string& kind) {
  return kind == "block" ? "[model.blocks.options]" : "[" + kind + ".options]";
}

void print_text(const LoadedPlugin& plugin, OptionLevel level) {
  const PluginManifest& manifest = plugin.manifest;
  fmt::print("{} {}: {}\n", plugin.id(), manifest.plugin_version, manifest.summary);
  fmt::print("  by {}, {}\n  file {}\n  sha256 {}\n", manifest.maintainer, manifest.license,
             plugin.file.string(), plugin.digest);
  for (const HfModel& model : plugin.hf_models()) {
    fmt::print("  serves Hugging Face model_type {} as block \"{}\"\n", model.model_type,
               model.block_name);
  }
  fmt::print("\n{}\n", options_table(plugin.kind));
  fmt::print("{}", options_text(plugin.options(), level));
}

void print_json(const LoadedPlugin& plugin, OptionLevel level) {
  const PluginManifest& manifest = plugin.manifest;
  nlohmann::json models = nlohmann::json::array();
  for (const HfModel& model : plugin.hf_models()) {
    models.push_back({{"model_type", model.model_type}, {"block", model.block_name}});
  }
  const nlohmann::json out = {{"kind", plugin.kind},
                              {"name", plugin.name},
                              {"version", manifest.plugin_version},
                              {"summary", manifest.summary},
                              {"maintainer", manifest.maintainer},
                              {"license", manifest.license},
                              {"file", plugin.file.string()},
                              {"sha256", plugin.digest},
                              {"table", options_table(plugin.kind)},
                              {"hf_models", models},
                              {"options", options_json(plugin.options(), level)}};
  fmt::print("{}\n", out.dump(2));
}

void print_core(OptionLevel level, bool json) {
  nlohmann::json out = nlohmann::json::array();
  for (const CoreTable& table : core_tables()) {
    if (json) {
      out.push_back({{"table", table.name},
                     {"doc", table.doc},
                     {"options", options_json(table.options, level)}});
    } else {
      fmt::print("[{}]  {}\n{}\n", table.name, table.doc, options_text(table.options, level));
    }
  }
  if (json) fmt::print("{}\n", out.dump(2));
}

std::shared_ptr<const LoadedPlugin> load(const std::string& id, PluginSearch search) {
  const size_t slash = id.find('/');
  if (slash == std::string::npos) {
    throw Error(Problem{Code::kP1NotFound,
                        {},
                        fmt::format("\"{}\" names no plugin", id),
                        "",
                        "Write KIND/NAME or core; `keyseat list` prints what there is."});
  }
  Registry registry(std::move(search));
  Problems problems;
  auto plugin = registry.load(id.substr(0, slash), id.substr(slash + 1), problems);
  if (plugin == nullptr) throw Error(std::move(problems));
  return plugin;
}

void write_docs(const std::string& folder, PluginSearch search) {
  Registry registry(std::move(search));
  Problems problems;
  std::vector<std::shared_ptr<const LoadedPlugin>> plugins;
  for (const FoundFile& found : find_all(registry.search(), problems)) {
    auto plugin = registry.load(found.id.kind, found.id.name, problems);
    if (plugin != nullptr) plugins.push_back(std::move(plugin));
  }
  if (!problems.empty()) throw Error(std::move(problems));
  write_option_pages(option_pages(plugins), folder);
}

}  // namespace

int command_describe(int argc, const char* const* argv) {
  CLI::App app{"Shows what a plugin is and the options it takes.", "keyseat describe"};
  std::string id, docs, level_name = "tuning";
  std::vector<std::string> plugin_dirs;
  bool json = false, allow_abi_mismatch = false;
  auto* id_option =
      app.add_option("PLUGIN", id, "KIND/NAME, for example dispatcher/local; or core");
  auto* docs_option =
      app.add_option("--docs", docs, "Write the pages of the option reference into this folder");
  docs_option->excludes(id_option);
  app.add_option("--level", level_name, "Show options up to this level")
      ->check(CLI::IsMember({"basic", "tuning", "developer"}))
      ->capture_default_str();
  app.add_flag("--json", json, "Print JSON");
  app.add_option("--plugin-dir", plugin_dirs,
                 "A folder searched for plugins first; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--allow-abi-mismatch", allow_abi_mismatch,
               "For developers: load plugins of another build");
  app.callback([&] {
    if (id.empty() && docs.empty()) throw CLI::RequiredError("PLUGIN");
  });
  if (const auto status = end_of_command_line(app, argc, argv)) return *status;

  const OptionLevel level = level_from_name(level_name);
  if (id == "core") {
    print_core(level, json);
    return 0;
  }
  std::vector<PluginFolder> folders;
  for (const std::string& folder : plugin_dirs) folders.push_back({folder, "--plugin-dir"});
  PluginSearch search = make_plugin_search(folders);
  search.allow_abi_mismatch = allow_abi_mismatch;
  if (!docs.empty()) {
    write_docs(docs, std::move(search));
    return 0;
  }
  const auto plugin = load(id, std::move(search));
  if (json) {
    print_json(*plugin, level);
  } else {
    print_text(*plugin, level);
  }
  return 0;
}

}  // namespace keyseat::tool
