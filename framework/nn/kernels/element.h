// Element types of the SIMD kernels. No kernel file includes LibTorch.
#pragma once

#include <cstdint>

namespace keyseat::nn::kernels {

struct BFloat16 {
  uint16_t bits;
};

}  // namespace keyseat::nn::kernels
