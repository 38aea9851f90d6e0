// Naive variable-length attention: the full score matrix of every segment.
// Legend: T rows, n query heads, m key/value heads, d head dim, L rows of one segment.
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>

#include "nn/naive.h"

namespace keyseat::nn::naive {
namespace {

at::Tensor segment_attention(const at::Tensor& q_Lnd, const at::Tensor& k_Lmd,
                             const at::Tensor& v_Lmd, bool causal, double scale) {
  const int64_t length = q_Lnd.size(0), group = q_Lnd.size(1) / k_Lmd.size(1);
  at::Tensor q_nLd = q_Lnd.transpose(0, 1);
  at::Tensor k_nLd = k_Lmd.transpose(0, 1).repeat_interleave(group, 0);
  at::Tensor v_nLd = v_Lmd.transpose(0, 1).repeat_interleave(group, 0);
  at::Tensor scores_nLL = q_nLd.matmul(k_nLd.transpose(1, 2)).mul(scale).to(wide_type(q_Lnd));
  if (causal) {
    at::Tensor later_LL = at::ones({length, length}, q_Lnd.options().dtype(at::kBool)).triu(1);
    scores_nLL = scores_nLL.masked_fill(later_LL, -std::numeric_limits<double>::infinity());
  }
  at::Tensor weights_nLL = scores_nLL.softmax(-1).to(q_Lnd.scalar_type());
  return weights_nLL.matmul(v_nLd).transpose(0, 1);
}

}  // namespace

at::Tensor varlen_attention(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd,
                            const at::Tensor& v_Tmd, const std::vector<int64_t>& cu_seqlens,
                            bool causal, double scale) {
  std::vector<at::Tensor> outputs;
  const auto attend = [&](int64_t begin, int64_t length) {
    outputs.push_back(segment_attention(q_Tnd.narrow(0, begin, length),
                                        k_Tmd.narrow(0, begin, length),
                                        v_Tmd.narrow(0, begin, length), causal, scale));
  };
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i)
    if (cu_seqlens[i + 1] > cu_seqlens[i]) attend(cu_seqlens[i], cu_seqlens[i + 1] - cu_seqlens[i]);
  if (outputs.empty()) attend(0, 0);  // no rows: an empty result with a graph
  return at::cat(outputs, 0);
}

}  // namespace keyseat::nn::naive
