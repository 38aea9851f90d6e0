#include "plugin/files/gate.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "keyseat_abi.h"

namespace keyseat {
namespace {

template <size_t N>
void copy_text(char (&field)[N], std::string_view text) {
  std::memcpy(field, text.data(), std::min(text.size(), N - 1));
}

// "gcc 12.2.0" -> "gcc 12": other releases of one major version are the same compiler to the ABI.
std::string_view compiler_major(std::string_view compiler) {
  return compiler.substr(0, compiler.find('.'));
}

std::string short_hash(std::string_view hash) { return std::string(hash.substr(0, 12)); }

}  // namespace

PluginManifest core_manifest(const std::string& kind) {
  uint32_t number = 0;
  std::string_view hash;
  for (const abi::Interface& interface : abi::kInterfaces) {
    if (kind == interface.kind) {
      number = interface.number;
      hash = interface.hash;
    }
  }
  PluginManifest core{};
  std::memcpy(core.magic, kManifestMagic, sizeof(core.magic));
  core.struct_size = sizeof(core);
  core.manifest_version = kManifestVersion;
  copy_text(core.kind, kind);
  core.interface_abi = number;
  copy_text(core.interface_hash, hash);
  core.glibcxx_cxx11_abi = _GLIBCXX_USE_CXX11_ABI;
#if defined(_GLIBCXX_DEBUG)
  core.debug_library = 1;
#endif
  core.cuda_major = abi::kCudaMajor;
  copy_text(core.torch_version, abi::kTorchVersion);
  copy_text(core.compiler, detail::kCompiler);
  copy_text(core.cxx_standard, detail::kCxxStandard);
  copy_text(core.build_type, abi::kBuildType);
  return core;
}

GateResult compare_with_core(const PluginManifest& manifest) {
  const PluginManifest core = core_manifest(manifest.kind);
  GateResult result;
  const auto mismatch = [&](std::string text) { result.mismatches.push_back(std::move(text)); };
  if (std::string_view(manifest.torch_version) != core.torch_version) {
    mismatch(fmt::format("built for LibTorch {}, this is {}", manifest.torch_version,
                         core.torch_version));
  }
  if (manifest.cuda_major != core.cuda_major) {
    mismatch(fmt::format("built for CUDA {}, this is {}", manifest.cuda_major, core.cuda_major));
  }
  const bool other_abi = manifest.glibcxx_cxx11_abi != core.glibcxx_cxx11_abi;
  if (other_abi) {
    mismatch(fmt::format("built with _GLIBCXX_USE_CXX11_ABI={}, this is {}",
                         manifest.glibcxx_cxx11_abi, core.glibcxx_cxx11_abi));
  }
  const bool other_mode = manifest.debug_library != core.debug_library;
  if (other_mode) {
    mismatch(fmt::format(
        "built with the debug mode of the C++ library (_GLIBCXX_DEBUG) {}, this is {}",
        manifest.debug_library != 0 ? "on" : "off", core.debug_library != 0 ? "on" : "off"));
  }
  if (manifest.interface_abi != core.interface_abi) {
    mismatch(fmt::format("interface \"{}\" {}, this is {}", manifest.kind, manifest.interface_abi,
                         core.interface_abi));
  } else if (std::string_view(manifest.interface_hash) != core.interface_hash && !other_abi &&
             !other_mode) {
    // The hash covers the two modes above as well; where they differ it says nothing new.
    mismatch(
        fmt::format("interface \"{}\" has number {} on both sides but other text (hash {}, this "
                    "is {}): a header was edited without raising the number, or the sanitizers "
                    "differ",
                    manifest.kind, core.interface_abi, short_hash(manifest.interface_hash),
                    short_hash(core.interface_hash)));
  }
  const auto warn = [&](const char* what, std::string_view theirs, std::string_view ours) {
    if (theirs != ours) {
      result.warnings.push_back(fmt::format("built with {} {}, this is {}", what, theirs, ours));
    }
  };
  warn("compiler", compiler_major(manifest.compiler), compiler_major(core.compiler));
  warn("C++ standard", manifest.cxx_standard, core.cxx_standard);
  warn("build type", manifest.build_type, core.build_type);
  return result;
}

std::optional<Problem> refusal(const PluginManifest& manifest, const GateResult& gate,
                               const std::filesystem::path& file) {
  if (gate.mismatches.empty()) return std::nullopt;
  std::string what =
      fmt::format("{}/{} is not usable here: {}", manifest.kind, manifest.name, gate.mismatches[0]);
  for (size_t i = 1; i < gate.mismatches.size(); ++i) what += "; also " + gate.mismatches[i];
  return Problem{Code::kP3Incompatible,
                 {},
                 std::move(what),
                 "",
                 "Rebuild it with the SDK of this version. File: " + file.string()};
}

}  // namespace keyseat
