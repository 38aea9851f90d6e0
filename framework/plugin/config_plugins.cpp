#include "plugin/config_plugins.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <vector>

#include "base/launch_environment.h"
#include "plugin/files/find.h"
#include "runtime/loggers.h"

namespace keyseat {

// A level that does not exist is reported with the other mistakes of the configuration.
void ConfigPlugins::use_log_level(const std::string& level) {
  [[maybe_unused]] const auto unknown = set_log_level(level, launch_environment().rank);
}

Problems ConfigPlugins::open(const PluginFolders& folders) {
  std::vector<PluginFolder> given;
  for (const PluginFolders::Folder& folder : folders.search) {
    given.push_back({folder.path, folder.origin});
  }
  PluginSearch search = make_plugin_search(given);
  search.pins = folders.pins;
  search.allow_abi_mismatch = allow_abi_mismatch_;
  // Told once, not with every plugin that is looked for.
  Problems problems = leave_out_missing_folders(search);
  registry_ = std::make_unique<Registry>(std::move(search));
  return problems;
}

void ConfigPlugins::log_loaded() const {
  constexpr size_t kDigits = 12;  // all of the digest is in `keyseat list --pins`
  std::map<std::string, std::vector<std::string>> by_folder;
  for (const auto& plugin : registry_->loaded()) {
    by_folder[plugin->file.parent_path().string()].push_back(
        fmt::format("{} {} (sha256 {})", plugin->id(), plugin->manifest.plugin_version,
                    plugin->digest.substr(0, kDigits)));
  }
  for (const auto& [folder, plugins] : by_folder) {
    logger("loader")->info("{} plugins from {}: {}", plugins.size(), folder,
                           fmt::join(plugins, ", "));
  }
}

const PluginSchema* ConfigPlugins::find(const std::string& kind, const std::string& name,
                                        Problems& problems) {
  const std::string id = kind + "/" + name;
  const auto known = schemas_.find(id);
  if (known != schemas_.end()) return &known->second;
  const auto plugin = registry_->load(kind, name, problems);
  if (plugin == nullptr) return nullptr;
  PluginSchema schema;
  try {
    schema.options = plugin->options();
  } catch (const Error& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    return nullptr;
  }
  schema.validate = [plugin](const Options& options) { return plugin->validate(options); };
  return &schemas_.emplace(id, std::move(schema)).first->second;
}

}  // namespace keyseat
