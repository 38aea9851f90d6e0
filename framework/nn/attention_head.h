// Causal attention of one fp32 head on the CPU by blocks of query rows. A block's scores against
// every key it sees stay in the cache; its products are BLAS calls on views, its softmax a SIMD
// kernel. Backward computes the scores again.
// Legend: L query rows, S keys, d head dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace keyseat::nn {

// Rows of a block. Small blocks waste less above the diagonal, large ones have fewer calls.
inline constexpr int64_t kBlockRows = 64;

// Query row i sees the keys below min(S, visible + i); 1 <= visible.
struct HeadAttention {
  at::Tensor q_Ld, k_Sd, v_Sd;
  int64_t visible = 1;
  float scale = 1;
};

// Room for the scores of a block.
at::Tensor head_scratch(const at::TensorOptions& options, int64_t queries, int64_t keys);

// Writes softmax(scale q k^T) v, and the log of the sum of exponentials of every row.
void forward_head(const HeadAttention& head, const at::Tensor& y_Ld, float* log_sum_L,
                  const at::Tensor& scratch);

// Where gradients go: written, or added. Those of the keys may only be written where the last query
// sees every key.
struct HeadGradients {
  at::Tensor dq_Ld, dk_Sd, dv_Sd;
  bool add_to_queries = false, add_to_keys = false;
};

// log_sum_L: over all keys of a row, also those that are not here. delta_L: dot products of the
// output and its gradient.
void backward_head(const HeadAttention& head, const at::Tensor& dy_Ld, const float* log_sum_L,
                   const float* delta_L, const HeadGradients& out,
                   const std::array<at::Tensor, 2>& scratch);

}  // namespace keyseat::nn
