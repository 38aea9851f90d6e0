// The gate: whether a plugin was built for exactly this core.
//
// The interfaces pass C++ types and LibTorch keeps no C++ ABI between versions, so all of what
// decides the ABI must be equal. The core's own values are constants made at build time: no
// LibTorch is needed to ask.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "keyseat/manifest.h"
#include "keyseat/status.h"

namespace keyseat {

struct GateResult {
  std::vector<std::string> mismatches;  // each refuses: `built for LibTorch 2.10.0, this is 2.11.0`
  std::vector<std::string> warnings;    // differences that usually do no harm
};

// Compares with this core. The manifest is well-formed (read_manifest()).
GateResult compare_with_core(const PluginManifest& manifest);

// All mismatches in one P3, or none.
std::optional<Problem> refusal(const PluginManifest& manifest, const GateResult& gate,
                               const std::filesystem::path& file);

// The values of this core for one kind, in the form of a manifest (kind set, name empty).
PluginManifest core_manifest(const std::string& kind);

}  // namespace keyseat
