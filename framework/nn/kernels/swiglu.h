// SIMD kernels of silu(gate) * up, times a weight per row where one is given.
#pragma once

#include "nn/kernels/element.h"

namespace keyseat::nn::kernels {

// y = silu(gate) * up * row_weight; a row of gate_up holds gate, then up.
template <typename T>
struct SwigluForward {
  const T* gate_up;         // [rows, 2 * width]
  const float* row_weight;  // [rows], or null for 1
  T* y;                     // [rows, width]
  int64_t rows, width;
};

template <typename T>
struct SwigluBackward {
  const T* dy;
  const T* gate_up;
  const float* row_weight;
  T* dgate_up;         // written
  float* drow_weight;  // [rows], written; or null
  int64_t rows, width;
};

void run(const SwigluForward<float>& job);
void run(const SwigluForward<BFloat16>& job);
void run(const SwigluBackward<float>& job);
void run(const SwigluBackward<BFloat16>& job);

}  // namespace keyseat::nn::kernels
