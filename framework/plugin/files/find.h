// Where plugins are looked for, and which file a name means.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "keyseat/plugin_search.h"
#include "keyseat/status.h"
#include "plugin/files/manifest_file.h"

namespace keyseat {

// A file named by the rule, in one of the folders.
struct FoundFile {
  PluginId id;
  std::filesystem::path file;  // absolute
};

// Every file named keyseat_KIND_NAME.so, by folder order, then by name. No file is opened.
// A folder that the user named and that does not exist is P1 in `problems`.
std::vector<FoundFile> find_all(const PluginSearch& search, Problems& problems);

// Whether a plugin came with the programme.
bool is_in_default_folder(const std::filesystem::path& file);

// Takes the folders out of the search that are none; a P1 for each.
Problems leave_out_missing_folders(PluginSearch& search);

// The one file of kind/name. P1 (with the nearest name, the folders and what there is) where there
// is none, P7 where two folders have one.
Result<FoundFile> find_plugin(const PluginSearch& search, const PluginId& id);

}  // namespace keyseat
