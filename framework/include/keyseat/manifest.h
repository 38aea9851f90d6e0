// The manifest: plain bytes in section `ks_man` of every plugin, read from the file before any of
// its code runs.
//
// Fixed size, fixed character arrays, no pointers, reserved tail. Filled by keyseat_add_plugin()
// and KEYSEAT_PLUGIN, never by hand. Torch-free, so that `keyseat list` can read it without
// LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace keyseat {

inline constexpr char kManifestMagic[16] = "KEYSEAT-PLUGIN\n";
inline constexpr uint32_t kManifestVersion = 1;

struct PluginManifest {
  char magic[16];
  uint32_t struct_size;
  uint32_t manifest_version;
  // Gate: every difference to the core is a refusal; all of them are shown together.
  char kind[32];
  char name[64];           // must equal the file name keyseat_KIND_NAME.so
  uint32_t interface_abi;  // of the kind
  uint32_t glibcxx_cxx11_abi;
  uint32_t debug_library;   // _GLIBCXX_DEBUG
  uint32_t cuda_major;      // of LibTorch
  char interface_hash[72];  // SHA-256 of the headers reachable from interfaces/KIND.h, in
                            // hexadecimal
  char torch_version[32];
  // Differences only warn.
  char compiler[64];
  char cxx_standard[16];
  char build_type[32];
  char nccl_version[16];
  // Information.
  char plugin_version[32];
  char commit[48];
  char maintainer[96];
  char license[32];
  char summary[192];  // one sentence
  char reserved[256];
};

namespace detail {

// What keyseat_add_plugin() generates (keyseat_plugin_identity.h).
struct ManifestIdentity {
  std::string_view kind, name;
  uint32_t interface_abi;
  std::string_view interface_hash, torch_version;
  uint32_t cuda_major;
  std::string_view build_type, commit;
};

// What the author writes into KEYSEAT_PLUGIN.
struct ManifestInformation {
  std::string_view plugin_version, maintainer, license, summary;
};

// Copies text into a field; too long a text does not compile.
template <size_t N>
consteval void set_field(char (&field)[N], std::string_view text) {
  if (text.size() >= N) throw "a manifest text is longer than its field";
  for (size_t i = 0; i < text.size(); ++i) field[i] = text[i];
}

// Year of the C++ standard this file is compiled with ("2020"), as digits of __cplusplus.
inline constexpr char kCxxStandard[] = {
    '0' + __cplusplus / 100000 % 10, '0' + __cplusplus / 10000 % 10, '0' + __cplusplus / 1000 % 10,
    '0' + __cplusplus / 100 % 10, '\0'};
#if defined(__clang__)
inline constexpr char kCompiler[] = "clang " __clang_version__;
#else
inline constexpr char kCompiler[] = "gcc " __VERSION__;
#endif

consteval PluginManifest make_manifest(ManifestIdentity identity, ManifestInformation information) {
  PluginManifest manifest{};
  for (size_t i = 0; i < sizeof(manifest.magic); ++i) manifest.magic[i] = kManifestMagic[i];
  manifest.struct_size = sizeof(manifest);
  manifest.manifest_version = kManifestVersion;
  set_field(manifest.kind, identity.kind);
  set_field(manifest.name, identity.name);
  manifest.interface_abi = identity.interface_abi;
  manifest.glibcxx_cxx11_abi = _GLIBCXX_USE_CXX11_ABI;
#if defined(_GLIBCXX_DEBUG)
  manifest.debug_library = 1;
#endif
  manifest.cuda_major = identity.cuda_major;
  set_field(manifest.interface_hash, identity.interface_hash);
  set_field(manifest.torch_version, identity.torch_version);
  set_field(manifest.compiler, kCompiler);
  set_field(manifest.cxx_standard, kCxxStandard);
  set_field(manifest.build_type, identity.build_type);
  set_field(manifest.plugin_version, information.plugin_version);
  set_field(manifest.commit, identity.commit);
  set_field(manifest.maintainer, information.maintainer);
  set_field(manifest.license, information.license);
  set_field(manifest.summary, information.summary);
  return manifest;
}

}  // namespace detail
}  // namespace keyseat
