// logsumexp of rows out of ops that have a meta form (LibTorch's own has none).
#pragma once

#include <ATen/core/Tensor.h>

namespace keyseat::nn {

// x [rows, columns] -> [rows, 1]; differentiable (the maximum only shifts and carries no gradient).
inline at::Tensor logsumexp_rows(const at::Tensor& x) {
  const at::Tensor maximum = x.detach().amax({1}, /*keepdim=*/true);
  return x.sub(maximum).exp().sum(1, /*keepdim=*/true).log().add(maximum);
}

}  // namespace keyseat::nn
