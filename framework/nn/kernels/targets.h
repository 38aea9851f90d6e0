// The instruction sets that SIMD kernels are compiled for; the best one of the CPU is chosen at run
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/status.h"

namespace keyseat::nn::kernels {

struct Target {
  int64_t id;
  std::string name;  // "AVX2"
};

// Those compiled in that this CPU has, best first.
KEYSEAT_API std::vector<Target> supported_targets();

// Restricts every kernel to one target, until forced again; 0 means the best.
KEYSEAT_API void force_target(int64_t id);

// The option run.cpu_target: a name of supported_targets(), in any case, or "best". C3 for one that
// this CPU or this build does not have.
KEYSEAT_API std::optional<Problem> use_target(const std::string& name);

}  // namespace keyseat::nn::kernels
