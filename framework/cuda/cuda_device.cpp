// libkeyseat_cuda.so: opens this process's GPU. Linking libtorch_cuda is what registers LibTorch's
// CUDA kernels.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <string>

extern "C" __attribute__((visibility("default"))) const char* keyseat_open_cuda_device(
    int64_t local_rank) noexcept {
  static std::string why;  // the caller reads it at once
  try {
    const c10::DeviceIndex count = c10::cuda::device_count_ensure_non_zero();
    if (local_rank < 0 || local_rank >= count) {
      why = "rank " + std::to_string(local_rank) + " of this host has no GPU: there are " +
            std::to_string(count);
      return why.c_str();
    }
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(local_rank));
    c10::cuda::CUDACachingAllocator::init(count);
    return nullptr;
  } catch (const c10::Error& error) {
    why = error.what_without_backtrace();
    return why.c_str();
  } catch (const std::exception& error) {
    why = error.what();
    return why.c_str();
  }
}
