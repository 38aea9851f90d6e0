// keyseat list: every plugin that is found, usable or not, without loading any of them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "plugin/files/inspect.h"
#include "tools/keyseat/command_line.h"
#include "tools/keyseat/light_commands.h"

namespace keyseat::tool {
namespace {

struct ListArguments {
  std::vector<std::string> plugin_dirs;
  bool json = false, pins = false, allow_abi_mismatch = false;
};

const char* state(const InspectedPlugin& plugin) {
  return plugin.refusals.empty() ? "ok" : "refused";
}

std::string version(const InspectedPlugin& plugin) {
  return plugin.has_manifest ? plugin.manifest.plugin_version : "-";
}

nlohmann::json to_json(const InspectedPlugin& plugin) {
  nlohmann::json problems = nlohmann::json::array();
  for (const Problem& problem : plugin.refusals) {
    problems.push_back({{"code", code_name(problem.code)}, {"text", problem.text()}});
  }
  nlohmann::json entry = {{"kind", plugin.id.kind}, {"name", plugin.id.name},
                          {"state", state(plugin)}, {"file", plugin.file.string()},
                          {"problems", problems},   {"warnings", plugin.warnings}};
  if (plugin.has_manifest) {
    const PluginManifest& manifest = plugin.manifest;
    entry["version"] = manifest.plugin_version;
    entry["summary"] = manifest.summary;
    entry["maintainer"] = manifest.maintainer;
    entry["license"] = manifest.license;
    entry["commit"] = manifest.commit;
    entry["libtorch"] = manifest.torch_version;
    entry["compiler"] = manifest.compiler;
  }
  return entry;
}

void print_json(const std::vector<InspectedPlugin>& plugins, const PluginSearch& search) {
  nlohmann::json out = {{"folders", nlohmann::json::array()}, {"plugins", nlohmann::json::array()}};
  for (const PluginFolder& folder : search.folders) {
    out["folders"].push_back({{"path", folder.path.string()}, {"origin", folder.origin}});
  }
  for (const InspectedPlugin& plugin : plugins) out["plugins"].push_back(to_json(plugin));
  // Texts of a broken file need not be UTF-8.
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_table(const std::vector<InspectedPlugin>& plugins) {
  size_t kind = 4, name = 4, plugin_version = 7;
  for (const InspectedPlugin& plugin : plugins) {
    kind = std::max(kind, plugin.id.kind.size());
    name = std::max(name, plugin.id.name.size());
    plugin_version = std::max(plugin_version, version(plugin).size());
  }
  const auto line = [&](std::string_view a, std::string_view b, std::string_view c,
                        std::string_view d, std::string_view e) {
    fmt::print("{:{}}  {:{}}  {:{}}  {:7}  {}\n", a, kind, b, name, c, plugin_version, d, e);
  };
  line("kind", "name", "version", "state", "file");
  for (const InspectedPlugin& plugin : plugins) {
    line(plugin.id.kind, plugin.id.name, version(plugin), state(plugin), plugin.file.string());
    for (const Problem& problem : plugin.refusals) fmt::print("    {}\n", problem.text());
    for (const std::string& warning : plugin.warnings) fmt::print("    warning: {}\n", warning);
  }
}

// The lines to paste into a config; refused plugins get none.
void print_pins(const std::vector<InspectedPlugin>& plugins) {
  fmt::print("[plugins.pin]\n");
  for (const InspectedPlugin& plugin : plugins) {
    if (!plugin.refusals.empty()) continue;
    const Result<std::string> digest = sha256_hex_of_file(plugin.file);
    if (digest) fmt::print("\"{}\" = \"{}\"\n", plugin.id.text(), digest.value());
  }
}

int list(const ListArguments& arguments) {
  std::vector<PluginFolder> folders;
  for (const std::string& folder : arguments.plugin_dirs) {
    folders.push_back({folder, "--plugin-dir"});
  }
  PluginSearch search = make_plugin_search(folders);
  search.allow_abi_mismatch = arguments.allow_abi_mismatch;
  Problems problems;
  std::vector<InspectedPlugin> plugins = inspect_all(search, problems);
  std::stable_sort(plugins.begin(), plugins.end(), [](const auto& a, const auto& b) {
    return std::tie(a.id.kind, a.id.name) < std::tie(b.id.kind, b.id.name);
  });
  if (arguments.pins) {
    print_pins(plugins);
  } else if (arguments.json) {
    print_json(plugins, search);
  } else {
    print_table(plugins);
  }
  if (problems.empty()) return 0;
  fmt::print(stderr, "{}\n", problems_text(problems));
  return exit_status(problems.front().code);
}

}  // namespace

int command_list(int argc, const char* const* argv) {
  CLI::App app{
      "Lists the plugins that are found, with the reason where one is refused. Loads none.",
      "keyseat list"};
  ListArguments arguments;
  app.add_option("--plugin-dir", arguments.plugin_dirs,
                 "A folder searched for plugins first; may be repeated")
      ->allow_extra_args(false);
  auto* json = app.add_flag("--json", arguments.json, "Print JSON");
  app.add_flag("--pins", arguments.pins, "Print [plugins.pin] lines to paste into a config")
      ->excludes(json);
  app.add_flag("--allow-abi-mismatch", arguments.allow_abi_mismatch,
               "For developers: show plugins of another build as usable, with a warning");
  if (const auto status = end_of_command_line(app, argc, argv)) return *status;
  return list(arguments);
}

}  // namespace keyseat::tool
