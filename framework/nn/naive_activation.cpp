// Naive activations, spelled out.
#include "nn/naive.h"

namespace keyseat::nn::naive {
namespace {

at::Tensor gated(const at::Tensor& gate_up_M2I) {
  const int64_t width = gate_up_M2I.size(-1) / 2;
  at::Tensor gate_MI = gate_up_M2I.narrow(-1, 0, width);
  return gate_MI.mul(gate_MI.sigmoid()).mul(gate_up_M2I.narrow(-1, width, width));
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up_M2I) {
  return gated(gate_up_M2I.to(wide_type(gate_up_M2I))).to(gate_up_M2I.scalar_type());
}

at::Tensor weighted_swiglu(const at::Tensor& gate_up_M2I, const at::Tensor& row_weight_M) {
  return gated(gate_up_M2I.to(wide_type(gate_up_M2I)))
      .mul(row_weight_M.unsqueeze(-1))
      .to(gate_up_M2I.scalar_type());
}

at::Tensor gelu_tanh(const at::Tensor& x) {
  at::Tensor wide = x.to(wide_type(x));
  at::Tensor inner = wide.add(wide.pow(3).mul(0.044715)).mul(std::sqrt(2.0 / M_PI));
  return wide.mul(0.5).mul(inner.tanh().add(1)).to(x.scalar_type());
}

at::Tensor gelu_erf(const at::Tensor& x) {
  at::Tensor wide = x.to(wide_type(x));
  return wide.mul(0.5).mul(wide.mul(std::sqrt(0.5)).erf().add(1)).to(x.scalar_type());
}

}  // namespace keyseat::nn::naive
