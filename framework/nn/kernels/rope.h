// SIMD kernel of rotary position embeddings; tables and arithmetic are fp32.
#pragma once

#include "nn/kernels/element.h"

namespace keyseat::nn::kernels {

// Turns the pairs (j, j + half) of every head by the angle of its row; dims past 2 * half are
// copied. direction 1 is the forward, -1 its gradient. x may have any row and head stride; y is
// contiguous [rows, heads, head_dim].
template <typename T>
struct Rope {
  const T* x;
  int64_t row_stride, head_stride;
  const float* cos;  // [rows, half]
  const float* sin;
  T* y;
  int64_t rows, heads, head_dim, half;
  float direction;
};

void run(const Rope<float>& job);
void run(const Rope<BFloat16>& job);

}  // namespace keyseat::nn::kernels
