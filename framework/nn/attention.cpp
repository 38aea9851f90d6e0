// Variable-length attention.
#include "keyseat/nn/attention.h"

#include <fmt/format.h>

#include "nn/attention_blocks.h"
#include "nn/attention_cuda.h"
#include "nn/attention_flash.h"
#include "nn/contract.h"
#include "nn/naive.h"

namespace keyseat::nn {
namespace {

void check_inputs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const std::vector<int64_t>& cu_seqlens) {
  const bool shapes_fit = q.dim() == 3 && k.dim() == 3 && v.sizes() == k.sizes() &&
                          k.size(0) == q.size(0) && k.size(2) == q.size(2) && k.size(1) > 0 &&
                          q.size(1) % k.size(1) == 0;
  if (!shapes_fit) {
    contract_error(fmt::format("attention got q [{}], k [{}], v [{}]", fmt::join(q.sizes(), ", "),
                               fmt::join(k.sizes(), ", "), fmt::join(v.sizes(), ", ")),
                   "q is [T, n, d], k and v are [T, m, d], and n is a multiple of m",
                   "check num_attention_heads, num_key_value_heads and head_dim");
  }
  const bool segments_fit = !cu_seqlens.empty() && cu_seqlens.front() == 0 &&
                            cu_seqlens.back() == q.size(0) &&
                            std::is_sorted(cu_seqlens.begin(), cu_seqlens.end());
  const bool no_rows = cu_seqlens.empty() && q.size(0) == 0;
  if (!segments_fit && !no_rows) {
    contract_error(fmt::format("segments [{}] do not cover the {} rows of attention",
                               fmt::join(cu_seqlens, ", "), q.size(0)),
                   "cu_seqlens rises from 0 to the number of rows",
                   "pass the cu_seqlens of the row that is being processed");
  }
}

}  // namespace

at::Tensor varlen_attention(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd,
                            const at::Tensor& v_Tmd, const std::vector<int64_t>& cu_seqlens,
                            bool causal, double scale, Kernels kernels) {
  check_inputs(q_Tnd, k_Tmd, v_Tmd, cu_seqlens);
  if (kernels == Kernels::kFast && q_Tnd.size(0) > 0) {
    if (q_Tnd.is_cpu() && causal && block_attention_takes(q_Tnd, k_Tmd, cu_seqlens))
      return block_attention(q_Tnd, k_Tmd, v_Tmd, cu_seqlens, scale);
    if (q_Tnd.is_cpu()) return flash_attention(q_Tnd, k_Tmd, v_Tmd, cu_seqlens, causal, scale);
    if (q_Tnd.is_cuda()) return cuda_attention(q_Tnd, k_Tmd, v_Tmd, cu_seqlens, causal, scale);
  }
  return naive::varlen_attention(q_Tnd, k_Tmd, v_Tmd, cu_seqlens, causal, scale);
}

}  // namespace keyseat::nn
