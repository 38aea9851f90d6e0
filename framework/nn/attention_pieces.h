// Causal attention between parts of a packed row, piece by piece: the softmax of a query row over
// keys that come in several pieces, merged by their logsumexps. Without autograd.
// Legend: C query rows, S key rows, n query heads, m key/value heads, d head dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "keyseat/row_share.h"

namespace keyseat::nn {

// Query rows [query, query + queries) of one tensor against key rows [key, key + keys) of others.
// Query i of them sees the keys below min(keys, visible + i); visible >= 1.
struct AttentionPiece {
  int64_t query, queries, key, keys, visible;
};

// What the rows `queries` see of the rows `keys` by causality and segments; the rows of the ranges
// lie one behind the other in their tensors. Pieces that see nothing are left out.
std::vector<AttentionPiece> attention_pieces(const std::vector<RowRange>& queries,
                                             const std::vector<RowRange>& keys,
                                             const std::vector<int64_t>& cu_seqlens);

// Over the keys met so far, in fp32 (fp64 for fp64 rows).
struct AttentionSums {
  explicit AttentionSums(const at::Tensor& q_Cnd);  // no key yet
  at::Tensor y_Cnd;                                 // softmax(scale q k^T) v
  at::Tensor log_sum_nC;                            // log of the sum of exponentials
};

// q [C, n, d], k and v [S, m, d] with a last dimension without gaps.
void attend(const AttentionPiece& piece, const at::Tensor& q_Cnd, const at::Tensor& k_Smd,
            const at::Tensor& v_Smd, double scale, AttentionSums& sums);

// What backward knows of the query rows.
struct AttentionRows {
  at::Tensor q_Cnd, dy_Cnd;
  at::Tensor log_sum_nC;  // over all keys
  at::Tensor delta_nC;    // dot products of output and its gradient, see row_deltas
  double scale;
};
at::Tensor row_deltas(const at::Tensor& y_Cnd, const at::Tensor& dy_Cnd);

// Sums of gradients, in the type of AttentionSums.
struct AttentionGradients {
  at::Tensor dq_Cnd, dk_Smd, dv_Smd;
};
void attend_backward(const AttentionPiece& piece, const AttentionRows& rows,
                     const at::Tensor& k_Smd, const at::Tensor& v_Smd,
                     const AttentionGradients& out);

}  // namespace keyseat::nn
