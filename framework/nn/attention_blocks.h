// Causal attention of fp32 CPU tensors by blocks of query rows. Legend as in
// keyseat/nn/attention.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace keyseat::nn {

// Where it beats LibTorch's flash attention: fp32, segments of several blocks, and enough pairs of
// segment and key head to keep every thread busy.
bool block_attention_takes(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd,
                           const std::vector<int64_t>& cu_seqlens);

at::Tensor block_attention(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd,
                           const at::Tensor& v_Tmd, const std::vector<int64_t>& cu_seqlens,
                           double scale);

}  // namespace keyseat::nn
