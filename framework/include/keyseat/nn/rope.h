// Rotary position embeddings: tables (non-differentiable functions of positions, fp32) and their
// application. Legend: T rows, D rotary dims, n heads, d head dim, P patches.
#pragma once

#include <utility>
#include <vector>

#include "keyseat/context.h"

namespace keyseat::nn {

struct RopeTables {
  at::Tensor cos, sin;  // fp32 [T, D / 2]; both halves of the head use the same values
};

// Interleaved M-RoPE from position_ids i64 [3, T]: frequency i takes h if i % 3 == 1 and i < 3 *
// section[1], w if i % 3 == 2 and i < 3 * section[2], else t. An empty section: plain rope on axis
// 0.
KEYSEAT_API RopeTables mrope_tables(const at::Tensor& position_ids_3T, int64_t rotary_dim,
                                    double theta, const std::vector<int64_t>& section);

// 2-D rope of the vision tower: head_dim / 4 frequencies of theta over head_dim / 2; angles (y
// part, x part), patches in merge-block order. grid_thw: [N * 3] on the host.
KEYSEAT_API RopeTables vision_rope_tables(const std::vector<int64_t>& grid_thw, int64_t merge_size,
                                          int64_t head_dim, double theta);

// rotate_half over the first D dims of every head, in fp32, result in x's dtype. x_Tnd: [T, n, d].
KEYSEAT_API at::Tensor apply_rope(const at::Tensor& x_Tnd, const RopeTables& tables,
                                  Kernels kernels);

// M-RoPE positions of one sample: token_type 0 text, 1 image, 2 video; grids in order of
// appearance, one run per image, one run per frame group of a video. Returns [3 * tokens],
// axis-major. plain: arange on all three axes.
KEYSEAT_API std::vector<int64_t> mrope_positions(const std::vector<int8_t>& token_type,
                                                 const std::vector<int64_t>& grid_thw,
                                                 int64_t merge_size);

}  // namespace keyseat::nn
