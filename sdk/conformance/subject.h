// The plugin under test, with options to make instances of it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "keyseat/config.h"
#include "keyseat/registry.h"
#include "sdk/conformance/cases.h"

namespace keyseat::conformance {

struct Subject {
  std::shared_ptr<const LoadedPlugin> plugin;
  std::optional<Options> options;  // none: see `without_options`
  std::string without_options;     // why there are none
  // What --config gave, and the registry that it was resolved with; null without it.
  const RunConfig* config = nullptr;
  Registry* registry = nullptr;

  // A new instance; skips the case where there are no options to make it with.
  template <typename Interface>
  std::shared_ptr<Interface> make() const {
    return std::static_pointer_cast<Interface>(make_any());
  }
  std::shared_ptr<void> make_any() const {
    if (!options) skip(without_options);
    return plugin->create(*options, {});
  }
};

// An instance of a plugin that comes with Keyseat, made with its defaults: an oracle, or what an
// interface needs around it.
template <typename Interface>
std::shared_ptr<Interface> stock(const std::string& name) {
  Registry registry(make_plugin_search({}));
  Problems problems;
  const auto plugin = registry.load(KindOf<Interface>::name, name, problems);
  if (plugin == nullptr) throw Error(std::move(problems));
  const Options options = resolve_options(plugin->options(), {}, "check", problems);
  if (!problems.empty()) throw Error(std::move(problems));
  return registry.create<Interface>(name, options);
}

// Cases that every plugin has to pass.
void common_cases(const Subject& subject, Cases& cases);
// Those of a kind, one file each.
void block_cases(const Subject& subject, Cases& cases);
void strategy_cases(const Subject& subject, Cases& cases);
void dispatcher_cases(const Subject& subject, Cases& cases);       // on one rank
void dispatcher_rank_cases(const Subject& subject, Cases& cases);  // on several
void recompute_cases(const Subject& subject, Cases& cases);
void comm_cases(const Subject& subject, Cases& cases);
void data_cases(const Subject& subject, Cases& cases);
void optimizer_cases(const Subject& subject, Cases& cases);

// All cases of the plugin's kind.
void all_cases(const Subject& subject, Cases& cases);

}  // namespace keyseat::conformance
