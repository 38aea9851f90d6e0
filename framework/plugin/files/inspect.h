// Everything that can be said of a plugin's file without running it.
#pragma once

#include <string>
#include <vector>

#include "plugin/files/find.h"

namespace keyseat {

struct InspectedPlugin {
  PluginId id;
  std::filesystem::path file;
  bool has_manifest = false;
  PluginManifest manifest{};
  Problems refusals;                  // empty: it may be loaded
  std::vector<std::string> warnings;  // compiler differences, and mismatches that are allowed
};

// Trust, manifest, gate and pin of one file, in this order; the first group that fails ends it.
InspectedPlugin inspect(const FoundFile& found, const PluginSearch& search);

// All files of the search; a kind/name in two folders refuses both (P7).
std::vector<InspectedPlugin> inspect_all(const PluginSearch& search, Problems& problems);

}  // namespace keyseat
