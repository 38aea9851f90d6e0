// What the plugins of the zoo share: a sound manifest, and a table without a Recompute behind it.
#pragma once

#include "keyseat/plugin.h"

#define ZOO_MANIFEST                                                                      \
  extern "C" __attribute__((visibility("default"), section("ks_man"), used))              \
  const keyseat::PluginManifest keyseat_plugin_manifest = keyseat::detail::make_manifest( \
      {KEYSEAT_PLUGIN_KIND, KEYSEAT_PLUGIN_NAME, KEYSEAT_PLUGIN_INTERFACE,                \
       KEYSEAT_PLUGIN_ABI_HASH, KEYSEAT_PLUGIN_TORCH_VERSION, KEYSEAT_PLUGIN_CUDA_MAJOR,  \
       KEYSEAT_PLUGIN_BUILD_TYPE, KEYSEAT_PLUGIN_COMMIT},                                 \
      {"0.0.1", "tests", "Apache-2.0", "A plugin of the zoo."});

// Not noexcept, unlike the entry of KEYSEAT_PLUGIN: some of them throw.
#define ZOO_ENTRY                                                                              \
  extern "C" __attribute__((visibility("default"))) keyseat::EntryStatus keyseat_plugin_entry( \
      keyseat::PluginTable* table)

namespace zoo {

inline keyseat::OptionSchema no_options() { return {}; }
inline keyseat::Problems no_problems(const keyseat::Options&) { return {}; }
inline std::vector<keyseat::HfModel> no_models() { return {}; }
inline std::shared_ptr<void> no_instance(const keyseat::Options&, const keyseat::PluginHost&) {
  return nullptr;
}

inline void fill(keyseat::PluginTable* table) {
  table->options = &no_options;
  table->validate = &no_problems;
  table->hf_models = &no_models;
  table->create = &no_instance;
}

}  // namespace zoo
