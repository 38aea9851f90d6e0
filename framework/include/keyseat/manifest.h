// The manifest: plain bytes in section `ks_man` of every plugin, read from the file before any of
// its code runs.
//
// Fixed size, fixed character arrays, no pointers, reserved tail. Filled by keyseat_add_plugin()
// and KEYSEAT_PLUGIN, never by hand. Torch-free, so that `keyseat list` can read it without
// LibTorch.
#pragma once

#include <cstdint>

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

}  // namespace keyseat
