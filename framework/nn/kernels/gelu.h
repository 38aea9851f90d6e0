// SIMD kernels of GELU in its tanh form, element by element.
#pragma once

#include "nn/kernels/element.h"

namespace keyseat::nn::kernels {

// y = x / 2 * (1 + tanh(u)), u = sqrt(2 / pi) * (x + 0.044715 x^3).
template <typename T>
struct GeluTanhForward {
  const T* x;
  T* y;
  int64_t count;
};

template <typename T>
struct GeluTanhBackward {
  const T* dy;
  const T* x;
  T* dx;
  int64_t count;
};

void run(const GeluTanhForward<float>& job);
void run(const GeluTanhForward<BFloat16>& job);
void run(const GeluTanhBackward<float>& job);
void run(const GeluTanhBackward<BFloat16>& job);

}  // namespace keyseat::nn::kernels
