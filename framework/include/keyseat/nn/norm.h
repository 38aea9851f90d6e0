// Norms. Statistics in fp32; x may have any leading dims and zero rows; the result has x's dtype.
#pragma once

#include "keyseat/context.h"
#include "keyseat/params.h"

namespace keyseat::nn {

// cast(x * rsqrt(mean(x^2) + eps)) * w over the last dim (cast back to x's dtype before multiplying
// w). Per-head norms pass x as [T, heads, d].
KEYSEAT_API at::Tensor rms_norm(const at::Tensor& x_TH, const ParamHandle& weight_H, double eps,
                                Kernels kernels);

// (x - mean) * rsqrt(var + eps) * w + b over the last dim.
KEYSEAT_API at::Tensor layer_norm(const at::Tensor& x_TH, const ParamHandle& weight_H,
                                  const ParamHandle& bias_H, double eps, Kernels kernels);

}  // namespace keyseat::nn
