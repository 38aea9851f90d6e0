// What plugin.cpp uses: the KEYSEAT_PLUGIN macro, and what the host hands to an instance.
//
//   KEYSEAT_PLUGIN(Dispatcher, LocalDispatcher, "1.0.0", "Keyseat authors", "Apache-2.0",
//                  "Experts in this process; the oracle of all dispatchers.")
//
// One entry with C linkage, noexcept; nothing is thrown across it. Libraries are never unloaded.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/hf_map.h"
#include "keyseat/manifest.h"
#include "keyseat/options.h"
#include "keyseat/status.h"

namespace spdlog {
class logger;
}

namespace keyseat {

// Given to every instance at construction.
struct PluginHost {
  std::shared_ptr<spdlog::logger>
      log;               // named "kind/name"; sinks, format and levels belong to the host
  std::string instance;  // the block's name in the config ("decoder"); else the kind
  int64_t seed = 0;
};

// What the entry fills in. Grows at the end only; `size` tells how much the host knows.
struct PluginTable {
  uint32_t size = sizeof(PluginTable);
  OptionSchema (*options)() = nullptr;
  Problems (*validate)(const Options&) = nullptr;
  std::vector<HfModel> (*hf_models)() = nullptr;
  // Points to an Interface object of the plugin's kind: shared_ptr<Block>, shared_ptr<Dispatcher>,
  // ...
  std::shared_ptr<void> (*create)(const Options&, const PluginHost&) = nullptr;
};

struct EntryStatus {
  bool ok = true;
  char text[1024] = {};
};

using PluginEntry = EntryStatus (*)(PluginTable*) noexcept;

namespace detail {

template <typename Plugin>
Problems validate_plugin(const Options& options) {
  if constexpr (requires { Plugin::validate(options); }) {
    return Plugin::validate(options);
  } else {
    return {};
  }
}

template <typename Plugin>
std::vector<HfModel> hf_models_of_plugin() {
  if constexpr (requires { Plugin::hf_models(); }) {
    return Plugin::hf_models();
  } else {
    return {};
  }
}

template <typename Interface, typename Plugin>
std::shared_ptr<void> create_plugin(const Options& options, const PluginHost& host) {
  static_assert(std::derived_from<Plugin, Interface>);
  // The void pointer must be one to Interface: the host casts it back to exactly that.
  std::shared_ptr<Interface> instance = std::make_shared<Plugin>(options, host);
  return instance;
}

template <typename Interface, typename Plugin>
EntryStatus fill_table(PluginTable* table) noexcept {
  table->options = &Plugin::options;
  table->validate = &validate_plugin<Plugin>;
  table->hf_models = &hf_models_of_plugin<Plugin>;
  table->create = &create_plugin<Interface, Plugin>;
  return {};
}

}  // namespace detail
}  // namespace keyseat

// Kind, name, interface number, ABI hash and build of the plugin that is being compiled: generated
// by keyseat_add_plugin(), absent in every other file that includes this header.
#if __has_include("keyseat_plugin_identity.h")
#include "keyseat_plugin_identity.h"
#endif

// The one macro of plugin.cpp: defines the two exports, manifest and entry.
#define KEYSEAT_PLUGIN(Interface, Plugin, version, maintainer, license, summary)                 \
  extern "C" __attribute__((visibility("default"), section("ks_man"), used))                     \
  const ::keyseat::PluginManifest keyseat_plugin_manifest = ::keyseat::detail::make_manifest(    \
      {KEYSEAT_PLUGIN_KIND, KEYSEAT_PLUGIN_NAME, KEYSEAT_PLUGIN_INTERFACE,                       \
       KEYSEAT_PLUGIN_ABI_HASH, KEYSEAT_PLUGIN_TORCH_VERSION, KEYSEAT_PLUGIN_CUDA_MAJOR,         \
       KEYSEAT_PLUGIN_BUILD_TYPE, KEYSEAT_PLUGIN_COMMIT},                                        \
      {version, maintainer, license, summary});                                                  \
  extern "C" __attribute__((visibility("default"))) ::keyseat::EntryStatus keyseat_plugin_entry( \
      ::keyseat::PluginTable* table) noexcept {                                                  \
    return ::keyseat::detail::fill_table<::keyseat::Interface, Plugin>(table);                   \
  }
