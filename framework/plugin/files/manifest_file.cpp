#include "plugin/files/manifest_file.h"

#include <fmt/format.h>

#include <cstring>

#include "keyseat/suggest.h"
#include "keyseat_abi.h"
#include "plugin/files/elf_file.h"

namespace keyseat {
namespace {

constexpr std::string_view kPrefix = "keyseat_", kSuffix = ".so";

template <size_t N>
bool ends(const char (&field)[N]) {
  return std::memchr(field, '\0', N) != nullptr;
}

// Every text field has to end inside itself before anything reads it as a string.
bool texts_end(const PluginManifest& m) {
  return ends(m.kind) && ends(m.name) && ends(m.interface_hash) && ends(m.torch_version) &&
         ends(m.compiler) && ends(m.cxx_standard) && ends(m.build_type) && ends(m.nccl_version) &&
         ends(m.plugin_version) && ends(m.commit) && ends(m.maintainer) && ends(m.license) &&
         ends(m.summary);
}

// Empty, or why these bytes are no manifest of this core.
std::string bytes_problem(std::string_view bytes, PluginManifest& manifest) {
  // The first three fields never move, so they can be judged before the size is known to fit.
  constexpr size_t kHead = offsetof(PluginManifest, kind);
  if (bytes.size() < kHead) return "its manifest is cut short";
  std::memcpy(&manifest, bytes.data(), kHead);
  if (std::memcmp(manifest.magic, kManifestMagic, sizeof(manifest.magic)) != 0) {
    return "its manifest has a wrong magic";
  }
  if (manifest.manifest_version != kManifestVersion) {
    return fmt::format("its manifest has version {}, this is version {}; it was built with {} SDK",
                       manifest.manifest_version, kManifestVersion,
                       manifest.manifest_version > kManifestVersion ? "a newer" : "an older");
  }
  if (manifest.struct_size != sizeof(manifest) || bytes.size() < sizeof(manifest)) {
    return fmt::format("its manifest has {} bytes and says {}, expected {}", bytes.size(),
                       manifest.struct_size, sizeof(manifest));
  }
  std::memcpy(&manifest, bytes.data(), sizeof(manifest));
  if (!texts_end(manifest)) return "a text of its manifest does not end";
  return {};
}

}  // namespace

const std::vector<std::string>& plugin_kinds() {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> names;
    for (const abi::Interface& interface : abi::kInterfaces) names.emplace_back(interface.kind);
    return names;
  }();
  return kinds;
}

std::optional<PluginId> id_from_file_name(std::string_view file_name) {
  if (!file_name.starts_with(kPrefix) || !file_name.ends_with(kSuffix)) return std::nullopt;
  const std::string_view middle =
      file_name.substr(kPrefix.size(), file_name.size() - kPrefix.size() - kSuffix.size());
  const size_t split = middle.find('_');
  if (split == std::string_view::npos || split == 0 || split + 1 == middle.size()) {
    return std::nullopt;
  }
  return PluginId{std::string(middle.substr(0, split)), std::string(middle.substr(split + 1))};
}

std::string file_name_of(const PluginId& id) {
  return fmt::format("{}{}_{}{}", kPrefix, id.kind, id.name, kSuffix);
}

Result<PluginManifest> read_manifest(const std::filesystem::path& file) {
  Result<ElfFile> elf = ElfFile::open(file);
  if (!elf) return elf.problem();
  const auto refuse = [&](const std::string& what, const std::string& remedy) {
    return Problem{Code::kP2NotAPlugin,
                   {},
                   fmt::format("{} is not a plugin: {}", file.string(), what),
                   "",
                   remedy};
  };
  const char* const rebuild = "Build it with keyseat_add_plugin() and KEYSEAT_PLUGIN of this SDK.";
  const auto bytes = elf.value().section("ks_man");
  if (!bytes) return refuse("it is a library without a manifest (no section ks_man)", rebuild);
  PluginManifest manifest;
  const std::string problem = bytes_problem(*bytes, manifest);
  if (!problem.empty()) return refuse(problem, rebuild);

  const PluginId said{manifest.kind, manifest.name};
  bool known = false;
  for (const std::string& kind : plugin_kinds()) known = known || kind == said.kind;
  if (!known) {
    return refuse(fmt::format("its kind \"{}\" does not exist here", said.kind),
                  fmt::format("Kinds: {}.", fmt::join(plugin_kinds(), ", ")));
  }
  if (file.filename().string() != file_name_of(said)) {
    return refuse(fmt::format("its manifest says {}, so its file must be called {}", said.text(),
                              file_name_of(said)),
                  "Rename the file back, or build it under the other name.");
  }
  return manifest;
}

}  // namespace keyseat
