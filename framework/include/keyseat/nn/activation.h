// Activations. Legend: M rows, I width.
#pragma once

#include "keyseat/context.h"

namespace keyseat::nn {

// silu(gate) * up with gate = x[:, :I], up = x[:, I:] of x_M2I -> [M, I].
KEYSEAT_API at::Tensor swiglu(const at::Tensor& gate_up_M2I, Kernels kernels);
// The same times row_weight_M (fp32), computed in fp32, then cast: the experts' activation.
// Gradient also to row_weight_M.
KEYSEAT_API at::Tensor weighted_swiglu(const at::Tensor& gate_up_M2I,
                                       const at::Tensor& row_weight_M, Kernels kernels);
KEYSEAT_API at::Tensor gelu_tanh(const at::Tensor& x, Kernels kernels);
KEYSEAT_API at::Tensor gelu_erf(const at::Tensor& x, Kernels kernels);

}  // namespace keyseat::nn
