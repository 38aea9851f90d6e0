// SIMD kernels of the softmax inside attention, on one block of query rows of one head. The blocks
// of scores are [rows, columns], contiguous, fp32.
#pragma once

#include <cstdint>

namespace keyseat::nn::kernels {

// Row r of the block sees the columns below min(columns, first_visible + r); the others are hidden.
// scores: q k^T in, softmax(scale * q k^T) out, zero where hidden.
struct AttentionSoftmax {
  float* scores;
  int64_t rows, columns, first_visible;
  float scale;
  float* log_sum;  // [rows], written: log of the sum of exp(scale * q k^T)
};

// scores: q k^T in, softmax out. gradient: that of the softmax in, that of q k^T out; both zero
// where hidden.
struct AttentionSoftmaxBackward {
  float* scores;
  float* gradient;
  int64_t rows, columns, first_visible;
  float scale;
  const float* log_sum;  // [rows]
  const float* delta;    // [rows]: dot products of the output and its gradient
};

// delta[r] = a_r . b_r over `width` values of rows with the given strides.
struct RowDots {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  float* delta;
  int64_t rows, width;
};

void run(const AttentionSoftmax& job);
void run(const AttentionSoftmaxBackward& job);
void run(const RowDots& job);

}  // namespace keyseat::nn::kernels
