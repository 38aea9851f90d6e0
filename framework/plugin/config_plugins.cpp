#include "plugin/config_plugins.h"

#include <vector>

namespace keyseat {

Problems ConfigPlugins::open(const PluginFolders& folders) {
  std::vector<PluginFolder> given;
  for (const PluginFolders::Folder& folder : folders.search) {
    given.push_back({folder.path, folder.origin});
  }
  PluginSearch search = make_plugin_search(given);
  search.pins = folders.pins;
  search.allow_abi_mismatch = allow_abi_mismatch_;
  registry_ = std::make_unique<Registry>(std::move(search));
  return {};
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
