// The device of a run, opened before anything is placed on it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "keyseat/config.h"

namespace keyseat {

// For the CPU: the CPU. For CUDA: loads libkeyseat_cuda.so (everything that links CUDA lives in
// libraries of their own, so that a machine without needs none) and makes GPU `local_rank` this
// process's device. Throws Error R1 where this build has no CUDA libraries, they cannot be loaded,
// or there is no such GPU.
c10::Device open_device(DeviceKind kind, int64_t local_rank);

// Entry of libkeyseat_cuda.so, C linkage. Null, or why the device cannot be used (static text or
// valid until the next call).
using OpenCudaDevice = const char* (*)(int64_t local_rank) noexcept;
inline constexpr const char* kOpenCudaDevice = "keyseat_open_cuda_device";

}  // namespace keyseat
