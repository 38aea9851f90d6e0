// Where plugins are looked for and what is asked of them before they are loaded. Torch-free.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "keyseat/export.h"

namespace keyseat {

struct PluginFolder {
  std::filesystem::path path;  // absolute
  std::string origin;          // who named it: "--plugin-dir", "run.toml:3", "default"
};

struct PluginSearch {
  // In order. Never the current folder, the system's folders or LD_LIBRARY_PATH. The same
  // kind/name in two of them is P7, whatever the order.
  std::vector<PluginFolder> folders;
  // SHA-256 by "kind/name". Where there is any, nothing else is loaded.
  std::map<std::string, std::string> pins;
  // For developers: a plugin of another build is loaded with a warning instead of P3.
  bool allow_abi_mismatch = false;
};

// The folder `plugins` beside this library's or programme's own folder (build/PRESET/plugins, or
// PREFIX/plugins), with origin "default"; empty where it does not exist.
KEYSEAT_API std::vector<PluginFolder> default_plugin_folders();

// A search over `given` (made absolute, in order) and then the default folder.
KEYSEAT_API PluginSearch make_plugin_search(const std::vector<PluginFolder>& given);

}  // namespace keyseat
