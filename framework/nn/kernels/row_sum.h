// SIMD kernels that add the rows of one token: the sum of unpermute and of permute's backward.
#pragma once

#include "nn/kernels/element.h"

namespace keyseat::nn::kernels {

// y[t] = sum over k, in this order and in fp32, of rows[slot[t, k]]; slot -1 adds nothing.
template <typename T>
struct RowSum {
  const T* rows;        // [any, width]
  const int64_t* slot;  // [tokens, choices]
  T* y;                 // [tokens, width]
  int64_t tokens, choices, width;
};

void run(const RowSum<float>& job);
void run(const RowSum<BFloat16>& job);

}  // namespace keyseat::nn::kernels
