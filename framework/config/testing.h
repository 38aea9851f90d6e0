// Helpers of the configuration's tests: plugins that are only schemas, files in a scratch folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "keyseat/config.h"

namespace keyseat::testing {

// Schemas without plugins: block/tower, block/decoder, strategy/single and /sharded,
// dispatcher/local, recompute/none, comm/self, data/folder and /mock, optimizer/adamw.
class FakeSchemas final : public SchemaSource {
 public:
  FakeSchemas();
  Problems open(const PluginFolders& folders) override;
  const PluginSchema* find(const std::string& kind, const std::string& name,
                           Problems& problems) override;

  PluginFolders opened;

 private:
  std::map<std::string, PluginSchema> schemas_;
};

// With the schemas above.
ResolvedConfig resolve(const ConfigRequest& request);

// A folder that is removed with the object.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  // Writes a file (folders are made) and returns its path.
  std::string write(const std::string& name, const std::string& text) const;
  std::string path(const std::string& name) const;

 private:
  std::filesystem::path folder_;
};

// A complete configuration: tower and decoder, data/folder, ten steps.
const char* complete_config();

// "C2 a.toml:3:1" of each problem, in their order, without folders, separated by ", ".
std::string places(const Problems& problems);

}  // namespace keyseat::testing
