// The manifest of a plugin, read from its file before any of its code runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keyseat/manifest.h"
#include "keyseat/status.h"

namespace keyseat {

// The kinds of this core, in the order of the design.
const std::vector<std::string>& plugin_kinds();

// What a file name says: keyseat_KIND_NAME.so. None for files that are not named by the rule; only
// those are looked at. `kind` may be one that this core does not have.
struct PluginId {
  std::string kind, name;
  std::string text() const { return kind + '/' + name; }
};
std::optional<PluginId> id_from_file_name(std::string_view file_name);
std::string file_name_of(const PluginId& id);

// The manifest of `file`, complete and well-formed: magic, sizes, ended texts, a known kind, and
// the identity that the file name says. Otherwise P2 with the reason. Never crashes, whatever the
// bytes.
Result<PluginManifest> read_manifest(const std::filesystem::path& file);

}  // namespace keyseat
