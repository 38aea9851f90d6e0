// SIMD kernels of LayerNorm over contiguous rows; parameters and statistics are fp32.
#pragma once

#include "nn/kernels/element.h"

namespace keyseat::nn::kernels {

// y = (x - mean) * rstd * w + b.
template <typename T>
struct LayerNormForward {
  const T* x;
  const float* w;
  const float* b;
  T* y;
  float* mean;  // [rows], written
  float* rstd;  // [rows], written
  int64_t rows, width;
  float eps;
};

// dx is written, dw and db ([width]) are added to; each may be null.
template <typename T>
struct LayerNormBackward {
  const T* dy;
  const T* x;
  const float* w;
  const float* mean;
  const float* rstd;
  T* dx;
  float* dw;
  float* db;
  int64_t rows, width;
};

void run(const LayerNormForward<float>& job);
void run(const LayerNormForward<BFloat16>& job);
void run(const LayerNormBackward<float>& job);
void run(const LayerNormBackward<BFloat16>& job);

}  // namespace keyseat::nn::kernels
