// LibTorch's flash attention for CPU tensors of every float dtype. Legend as in
// keyseat/nn/attention.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace keyseat::nn {

// x, or a copy of it whose last dimension lies without gaps.
inline at::Tensor last_dim_packed(const at::Tensor& x) {
  return x.stride(-1) == 1 ? x : x.contiguous();
}

at::Tensor flash_attention(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd,
                           const at::Tensor& v_Tmd, const std::vector<int64_t>& cu_seqlens,
                           bool causal, double scale);

}  // namespace keyseat::nn
