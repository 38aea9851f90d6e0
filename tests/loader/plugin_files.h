// Folders of copied and edited plugins for the tests of the loader.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "keyseat/manifest.h"
#include "keyseat/plugin_search.h"
#include "keyseat/status.h"

namespace keyseat_loader {

std::filesystem::path build_dir();  // build/PRESET of this executable
std::filesystem::path good_file();  // keyseat_recompute_none.so, a real plugin of the tree
std::filesystem::path zoo_file(const std::string& name);

// A folder that only this user can write to, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  // Copies `file` here, under `name` if one is given.
  std::filesystem::path copy(const std::filesystem::path& file, const std::string& name = "") const;
  std::filesystem::path write(const std::string& name, const std::string& bytes) const;
  keyseat::PluginSearch search() const;  // this folder only

 private:
  std::filesystem::path path_;
};

std::string read_bytes(const std::filesystem::path& file);
// Changes the manifest inside a copied plugin.
void edit_manifest(const std::filesystem::path& file,
                   const std::function<void(keyseat::PluginManifest&)>& edit);

// All problems of loading kind/name through a registry, as text; empty where it was loaded.
std::string load_text(const keyseat::PluginSearch& search, const std::string& kind,
                      const std::string& name);
// Of a file that has to be refused before it is loaded; checks that it is not mapped afterwards.
std::string refusal_text(const keyseat::PluginSearch& search, const std::string& kind,
                         const std::string& name);

// Whether a library of this file name is mapped into this process.
bool is_mapped(const std::string& file_name);

struct CommandResult {
  int status = 0;
  std::string out, err;
};
CommandResult run_keyseat(const std::string& arguments);

}  // namespace keyseat_loader
