// The registry: plugins by kind and name, found, checked, loaded and made into instances.
//
//   Registry registry(make_plugin_search({{folder, "--plugin-dir"}}));
//   Problems problems;
//   auto plugin = registry.load("dispatcher", "local", problems);
//   auto dispatcher = registry.create<Dispatcher>("local", options, {});
//
// A name in a config means that plugin or a stop: no scoring, no fallback. Libraries stay loaded
// until the process ends. Calls may come from any thread.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/manifest.h"
#include "keyseat/plugin.h"
#include "keyseat/plugin_search.h"
#include "keyseat/status.h"

namespace keyseat {

class Block;
class Strategy;
class Dispatcher;
class Recompute;
class Comm;
class Data;
class Optimizer;

// The kind that an interface class belongs to.
template <typename Interface>
struct KindOf;
// clang-format off
template <> struct KindOf<Block> { static constexpr const char* name = "block"; };
template <> struct KindOf<Strategy> { static constexpr const char* name = "strategy"; };
template <> struct KindOf<Dispatcher> { static constexpr const char* name = "dispatcher"; };
template <> struct KindOf<Recompute> { static constexpr const char* name = "recompute"; };
template <> struct KindOf<Comm> { static constexpr const char* name = "comm"; };
template <> struct KindOf<Data> { static constexpr const char* name = "data"; };
template <> struct KindOf<Optimizer> { static constexpr const char* name = "optimizer"; };
// clang-format on

// A plugin whose library is loaded and whose entry has run. Its functions may be called for as long
// as the process lives. Exceptions out of them are reworded to name the plugin (P6); an Error that
// the plugin threw itself passes unchanged.
struct KEYSEAT_API LoadedPlugin {
  std::string kind, name;
  std::filesystem::path file;
  std::string digest;  // SHA-256 of the file
  PluginManifest manifest{};
  PluginTable table;
  std::shared_ptr<const void> library;  // what keeps the code mapped

  std::string id() const { return kind + '/' + name; }
  OptionSchema options() const;
  Problems validate(const Options& options) const;
  std::vector<HfModel> hf_models() const;
  // An instance that also holds the library. `host.log` is filled in where it is empty, and
  // `host.instance` becomes the kind.
  std::shared_ptr<void> create(const Options& options, PluginHost host) const;
};

class KEYSEAT_API Registry {
 public:
  explicit Registry(PluginSearch search);

  // The plugin, loaded on the first call. Where it cannot be, null, with every reason in
  // `problems` (P1 .. P7). Logs a line that names the file before it is loaded, so that an abort
  // inside the linker has a culprit, and one with version and digest after it.
  std::shared_ptr<const LoadedPlugin> load(const std::string& kind, const std::string& name,
                                           Problems& problems);

  // A new instance; Error with the reasons where the plugin cannot be loaded or created.
  template <typename Interface>
  std::shared_ptr<Interface> create(const std::string& name, const Options& options,
                                    PluginHost host = {}) {
    return std::static_pointer_cast<Interface>(
        create_any(KindOf<Interface>::name, name, options, std::move(host)));
  }

  // Loaded so far by this registry, in order of loading.
  std::vector<std::shared_ptr<const LoadedPlugin>> loaded() const;
  const PluginSearch& search() const { return search_; }

 private:
  std::shared_ptr<void> create_any(const std::string& kind, const std::string& name,
                                   const Options& options, PluginHost host);
  PluginSearch search_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const LoadedPlugin>> loaded_;
};

}  // namespace keyseat
