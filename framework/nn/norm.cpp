// RMSNorm and LayerNorm.
#include "keyseat/nn/norm.h"

#include "nn/naive.h"

namespace keyseat::nn {

at::Tensor rms_norm(const at::Tensor& x_TH, const ParamHandle& weight_H, double eps, Kernels) {
  return naive::rms_norm(x_TH, weight_H, eps);
}

at::Tensor layer_norm(const at::Tensor& x_TH, const ParamHandle& weight_H,
                      const ParamHandle& bias_H, double eps, Kernels) {
  return naive::layer_norm(x_TH, weight_H, bias_H, eps);
}

}  // namespace keyseat::nn
