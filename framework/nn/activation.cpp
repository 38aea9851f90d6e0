// Activations.
#include "keyseat/nn/activation.h"

#include "nn/naive.h"

namespace keyseat::nn {

at::Tensor swiglu(const at::Tensor& gate_up_M2I, Kernels) { return naive::swiglu(gate_up_M2I); }

at::Tensor weighted_swiglu(const at::Tensor& gate_up_M2I, const at::Tensor& row_weight_M, Kernels) {
  return naive::weighted_swiglu(gate_up_M2I, row_weight_M);
}

at::Tensor gelu_tanh(const at::Tensor& x, Kernels) { return naive::gelu_tanh(x); }
at::Tensor gelu_erf(const at::Tensor& x, Kernels) { return naive::gelu_erf(x); }

}  // namespace keyseat::nn
