// Naive RMSNorm and LayerNorm.
#include "nn/naive.h"

namespace keyseat::nn::naive {

at::Tensor rms_norm(const at::Tensor& x_TH, const ParamHandle& weight_H, double eps) {
  at::Tensor wide_TH = x_TH.to(wide_type(x_TH));
  at::Tensor rstd_T1 = wide_TH.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt();
  // Cast back before multiplying the weight, as transformers does.
  const at::ScalarType dtype = x_TH.scalar_type();
  return wide_TH.mul(rstd_T1).to(dtype).mul(weight_H.value()).to(dtype);
}

at::Tensor layer_norm(const at::Tensor& x_TH, const ParamHandle& weight_H,
                      const ParamHandle& bias_H, double eps) {
  at::Tensor wide_TH = x_TH.to(wide_type(x_TH));
  at::Tensor centred_TH = wide_TH.sub(wide_TH.mean(-1, /*keepdim=*/true));
  at::Tensor rstd_T1 = centred_TH.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt();
  return centred_TH.mul(rstd_T1).mul(weight_H.value()).add(bias_H.value()).to(x_TH.scalar_type());
}

}  // namespace keyseat::nn::naive
