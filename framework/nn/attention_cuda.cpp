// Attention on CUDA through LibTorch's dispatcher; needs no CUDA library to link against.
// Legend: T rows, n query heads, m key/value heads, d head dim, L rows of one segment.
#include "nn/attention_cuda.h"

#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>

namespace keyseat::nn {
namespace {

// What LibTorch's variable-length flash attention takes.
bool flash_takes(const at::Tensor& q_Tnd) {
  const at::ScalarType dtype = q_Tnd.scalar_type();
  const bool half = dtype == at::kBFloat16 || dtype == at::kHalf;
  return half && q_Tnd.size(0) > 0 && q_Tnd.size(2) % 8 == 0 && q_Tnd.size(2) <= 256;
}

at::Tensor heads_first(const at::Tensor& x_Tnd, int64_t begin, int64_t length) {
  return x_Tnd.narrow(0, begin, length).transpose(0, 1).unsqueeze(0);
}

}  // namespace

at::Tensor cuda_attention(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd, const at::Tensor& v_Tmd,
                          const std::vector<int64_t>& cu_seqlens, bool causal, double scale) {
  int64_t longest = 0;
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i)
    longest = std::max(longest, cu_seqlens[i + 1] - cu_seqlens[i]);
  if (flash_takes(q_Tnd)) {
    at::Tensor bounds = at::tensor(cu_seqlens, at::kInt).to(q_Tnd.device());
    return std::get<0>(at::_flash_attention_forward(q_Tnd, k_Tmd, v_Tmd, bounds, bounds, longest,
                                                    longest, /*dropout_p=*/0.0, causal,
                                                    /*return_debug_mask=*/false, scale));
  }
  std::vector<at::Tensor> outputs;
  const auto attend = [&](int64_t begin, int64_t length) {
    at::Tensor y_1nLd = at::scaled_dot_product_attention(
        heads_first(q_Tnd, begin, length), heads_first(k_Tmd, begin, length),
        heads_first(v_Tmd, begin, length), /*attn_mask=*/{}, /*dropout_p=*/0.0, causal, scale,
        /*enable_gqa=*/q_Tnd.size(1) != k_Tmd.size(1));
    outputs.push_back(y_1nLd.squeeze(0).transpose(0, 1));
  };
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i)
    if (cu_seqlens[i + 1] > cu_seqlens[i]) attend(cu_seqlens[i], cu_seqlens[i + 1] - cu_seqlens[i]);
  return at::cat(outputs, 0);
}

}  // namespace keyseat::nn
