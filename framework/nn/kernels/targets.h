// The instruction sets that SIMD kernels are compiled for; the best one of the CPU is chosen at run
// time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keyseat/export.h"

namespace keyseat::nn::kernels {

struct Target {
  int64_t id;
  std::string name;  // "AVX2"
};

// Those compiled in that this CPU has, best first.
KEYSEAT_API std::vector<Target> supported_targets();

// Restricts every kernel to one target, until forced again; 0 means the best.
KEYSEAT_API void force_target(int64_t id);

}  // namespace keyseat::nn::kernels
