// SIMD kernels of RMSNorm over contiguous rows; weights and statistics are fp32.
#pragma once

#include "nn/kernels/element.h"

namespace keyseat::nn::kernels {

// y = T(x * rstd) * w.
template <typename T>
struct RmsNormForward {
  const T* x;
  const float* w;
  T* y;
  float* rstd;  // [rows], written
  int64_t rows, width;
  float eps;
};

// dx is written, dw ([width]) is added to; either may be null.
template <typename T>
struct RmsNormBackward {
  const T* dy;
  const T* x;
  const float* w;
  const float* rstd;
  T* dx;
  float* dw;
  int64_t rows, width;
};

void run(const RmsNormForward<float>& job);
void run(const RmsNormForward<BFloat16>& job);
void run(const RmsNormBackward<float>& job);
void run(const RmsNormBackward<BFloat16>& job);

}  // namespace keyseat::nn::kernels
