// Naive oracles of the ops in keyseat/nn: plain differentiable LibTorch operations, written to be
// obviously right, in fp64 too. They run on every device, meta included, and return weight
// gradients through autograd. Legends are those of the public headers.
#pragma once

#include <vector>

#include "keyseat/nn/position_embedding.h"
#include "keyseat/nn/rope.h"
#include "keyseat/params.h"

namespace keyseat::nn::naive {

// Statistics of norms and softmax, and rope itself, are computed in fp32, or in fp64 for fp64 x.
inline at::ScalarType wide_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor rms_norm(const at::Tensor& x_TH, const ParamHandle& weight_H, double eps);
at::Tensor layer_norm(const at::Tensor& x_TH, const ParamHandle& weight_H,
                      const ParamHandle& bias_H, double eps);
at::Tensor apply_rope(const at::Tensor& x_Tnd, const RopeTables& tables);
at::Tensor varlen_attention(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd,
                            const at::Tensor& v_Tmd, const std::vector<int64_t>& cu_seqlens,
                            bool causal, double scale);
// Query i of L sees the keys below min(S, visible + i).
at::Tensor visible_attention(const at::Tensor& q_Lnd, const at::Tensor& k_Smd,
                             const at::Tensor& v_Smd, int64_t visible, double scale);
at::Tensor interpolate_positions(const ParamHandle& table_GGC, const PositionTaps& taps);
at::Tensor swiglu(const at::Tensor& gate_up_M2I);
at::Tensor weighted_swiglu(const at::Tensor& gate_up_M2I, const at::Tensor& row_weight_M);
at::Tensor gelu_tanh(const at::Tensor& x);
at::Tensor gelu_erf(const at::Tensor& x);

}  // namespace keyseat::nn::naive
