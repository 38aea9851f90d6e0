#include "plugin/files/inspect.h"

#include <fmt/format.h>

#include "plugin/files/gate.h"
#include "plugin/files/trust.h"

namespace keyseat {

InspectedPlugin inspect(const FoundFile& found, const PluginSearch& search) {
  InspectedPlugin plugin;
  plugin.id = found.id;
  plugin.file = found.file;
  if (auto problem = check_trust(found.file)) {
    plugin.refusals.push_back(std::move(*problem));
    return plugin;
  }
  const Result<PluginManifest> manifest = read_manifest(found.file);
  if (!manifest) {
    plugin.refusals.push_back(manifest.problem());
    return plugin;
  }
  plugin.has_manifest = true;
  plugin.manifest = manifest.value();
  GateResult gate = compare_with_core(plugin.manifest);
  if (search.allow_abi_mismatch) {
    for (std::string& mismatch : gate.mismatches) {
      plugin.warnings.push_back(mismatch + " (--allow-abi-mismatch: anything may happen)");
    }
  } else if (auto problem = refusal(plugin.manifest, gate, found.file)) {
    plugin.refusals.push_back(std::move(*problem));
  }
  plugin.warnings.insert(plugin.warnings.end(), gate.warnings.begin(), gate.warnings.end());
  if (auto problem = check_pin(found.file, found.id.text(), search.pins)) {
    plugin.refusals.push_back(std::move(*problem));
  }
  return plugin;
}

std::vector<InspectedPlugin> inspect_all(const PluginSearch& search, Problems& problems) {
  std::vector<InspectedPlugin> plugins;
  for (const FoundFile& file : find_all(search, problems)) {
    plugins.push_back(inspect(file, search));
  }
  for (InspectedPlugin& plugin : plugins) {
    for (const InspectedPlugin& other : plugins) {
      if (&other == &plugin || other.id.text() != plugin.id.text()) continue;
      plugin.refusals.push_back(
          Problem{Code::kP7Conflict,
                  {},
                  fmt::format("plugin {} is in two folders: {} and {}", plugin.id.text(),
                              plugin.file.string(), other.file.string()),
                  "Which of them is meant would depend on the order of the folders.",
                  "Remove one file or one folder."});
      break;
    }
  }
  return plugins;
}

}  // namespace keyseat
