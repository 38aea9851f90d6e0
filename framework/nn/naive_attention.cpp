// Naive attention: full score matrices.
// Legend: T rows, n query heads, m key/value heads, d head dim, L queries, S keys.
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>

#include "nn/naive.h"

namespace keyseat::nn::naive {

at::Tensor visible_attention(const at::Tensor& q_Lnd, const at::Tensor& k_Smd,
                             const at::Tensor& v_Smd, int64_t visible, double scale) {
  const int64_t queries = q_Lnd.size(0), keys = k_Smd.size(0);
  const int64_t group = q_Lnd.size(1) / k_Smd.size(1);
  at::Tensor q_nLd = q_Lnd.transpose(0, 1);
  at::Tensor k_nSd = k_Smd.transpose(0, 1).repeat_interleave(group, 0);
  at::Tensor v_nSd = v_Smd.transpose(0, 1).repeat_interleave(group, 0);
  at::Tensor scores_nLS = q_nLd.matmul(k_nSd.transpose(1, 2)).mul(scale).to(wide_type(q_Lnd));
  if (visible < keys) {
    at::Tensor later_LS = at::ones({queries, keys}, q_Lnd.options().dtype(at::kBool)).triu(visible);
    scores_nLS = scores_nLS.masked_fill(later_LS, -std::numeric_limits<double>::infinity());
  }
  at::Tensor weights_nLS = scores_nLS.softmax(-1).to(q_Lnd.scalar_type());
  return weights_nLS.matmul(v_nSd).transpose(0, 1);
}

at::Tensor varlen_attention(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd,
                            const at::Tensor& v_Tmd, const std::vector<int64_t>& cu_seqlens,
                            bool causal, double scale) {
  std::vector<at::Tensor> outputs;
  const auto attend = [&](int64_t begin, int64_t length) {
    outputs.push_back(
        visible_attention(q_Tnd.narrow(0, begin, length), k_Tmd.narrow(0, begin, length),
                          v_Tmd.narrow(0, begin, length), causal ? 1 : length, scale));
  };
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i)
    if (cu_seqlens[i + 1] > cu_seqlens[i]) attend(cu_seqlens[i], cu_seqlens[i + 1] - cu_seqlens[i]);
  if (outputs.empty()) attend(0, 0);  // no rows: an empty result with a graph
  return at::cat(outputs, 0);
}

}  // namespace keyseat::nn::naive
