// The registry as the configuration's source of schemas.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "keyseat/config.h"
#include "keyseat/registry.h"

namespace keyseat {

// Looks where the configuration says: --plugin-dir, [plugins] search, then the default folder, with
// the pins of [plugins.pin]. Afterwards `registry()` makes the instances.
class KEYSEAT_API ConfigPlugins final : public SchemaSource {
 public:
  explicit ConfigPlugins(bool allow_abi_mismatch = false)
      : allow_abi_mismatch_(allow_abi_mismatch) {}

  void use_log_level(const std::string& level) override;
  Problems open(const PluginFolders& folders) override;
  const PluginSchema* find(const std::string& kind, const std::string& name,
                           Problems& problems) override;
  // After resolve_config().
  Registry& registry() { return *registry_; }
  // One line per folder: the plugins that were loaded, with version and digest.
  void log_loaded() const;

 private:
  bool allow_abi_mismatch_;
  std::unique_ptr<Registry> registry_;
  std::map<std::string, PluginSchema> schemas_;  // by "kind/name"
};

}  // namespace keyseat
