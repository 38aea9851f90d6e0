// Variable-length attention by segments of a packed row.
// Legend: T rows, n query heads, m key/value heads (n a multiple of m), d head dim.
#pragma once

#include <vector>

#include "keyseat/context.h"

namespace keyseat::nn {

// softmax(scale q k^T [+ causal mask]) v inside each segment [cu_seqlens[i], cu_seqlens[i+1]);
// softmax in fp32. Segments of zero length and T = 0 are legal. Returns [T, n, d], contiguous, in
// q's dtype.
KEYSEAT_API at::Tensor varlen_attention(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd,
                                        const at::Tensor& v_Tmd,
                                        const std::vector<int64_t>& cu_seqlens, bool causal,
                                        double scale, Kernels kernels);

}  // namespace keyseat::nn
