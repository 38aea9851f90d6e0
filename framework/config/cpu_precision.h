// Which compute type `precision = "auto"` is on this machine.
#pragma once

#include <string>

#include "keyseat/config.h"

namespace keyseat {

// True where the flags of /proc/cpuinfo name native bf16 products (AMX or AVX512-BF16). The kernel
// lists a flag only where it also saves the registers.
bool has_native_bf16(const std::string& cpuinfo);

// GPUs: bf16. CPUs: bf16 only where native; without it a bf16 GEMM runs at a fiftieth of the speed
// of fp32 on the same core. `reason` says which, in words.
Precision automatic_precision(DeviceKind device, std::string& reason);

}  // namespace keyseat
