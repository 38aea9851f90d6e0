#include "tests/loader/plugin_files.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "keyseat/registry.h"

namespace keyseat_loader {

namespace fs = std::filesystem;

fs::path build_dir() { return fs::canonical("/proc/self/exe").parent_path().parent_path(); }
fs::path good_file() { return build_dir() / "plugins" / "keyseat_recompute_none.so"; }
fs::path zoo_file(const std::string& name) {
  return build_dir() / "zoo" / ("keyseat_recompute_" + name + ".so");
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "keyseat-loader-XXXXXX").string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  path_ = fs::canonical(name);
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

fs::path TemporaryFolder::copy(const fs::path& file, const std::string& name) const {
  const fs::path to = path_ / (name.empty() ? file.filename().string() : name);
  fs::copy_file(file, to);
  return to;
}

fs::path TemporaryFolder::write(const std::string& name, const std::string& bytes) const {
  std::ofstream(path_ / name, std::ios::binary) << bytes;
  return path_ / name;
}

keyseat::PluginSearch TemporaryFolder::search() const {
  keyseat::PluginSearch search;
  search.folders = {{path_, "test"}};
  return search;
}

std::string read_bytes(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void edit_manifest(const fs::path& file,
                   const std::function<void(keyseat::PluginManifest&)>& edit) {
  std::string bytes = read_bytes(file);
  const std::string magic(keyseat::kManifestMagic, sizeof(keyseat::kManifestMagic));
  const size_t at = bytes.find(magic);
  REQUIRE(at != std::string::npos);
  REQUIRE(at + sizeof(keyseat::PluginManifest) <= bytes.size());
  keyseat::PluginManifest manifest;
  std::memcpy(&manifest, bytes.data() + at, sizeof(manifest));
  edit(manifest);
  std::memcpy(bytes.data() + at, &manifest, sizeof(manifest));
  std::ofstream(file, std::ios::binary) << bytes;
}

std::string load_text(const keyseat::PluginSearch& search, const std::string& kind,
                      const std::string& name) {
  keyseat::Registry registry(search);
  keyseat::Problems problems;
  const auto plugin = registry.load(kind, name, problems);
  CHECK((plugin == nullptr) == !problems.empty());
  return keyseat::problems_text(problems);
}

std::string refusal_text(const keyseat::PluginSearch& search, const std::string& kind,
                         const std::string& name) {
  const std::string text = load_text(search, kind, name);
  for (const keyseat::PluginFolder& folder : search.folders) {
    CHECK_FALSE(is_mapped(folder.path.string()));
  }
  return text;
}

bool is_mapped(const std::string& file_name) {
  return read_bytes("/proc/self/maps").find(file_name) != std::string::npos;
}

CommandResult run_keyseat(const std::string& arguments) {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "out").string(), err = (folder.path() / "err").string();
  const std::string command =
      (build_dir() / "bin" / "keyseat").string() + " " + arguments + " > " + out + " 2> " + err;
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_bytes(out), read_bytes(err)};
}

}  // namespace keyseat_loader
