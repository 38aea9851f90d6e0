// index_select over rows that also runs on meta tensors, where LibTorch's has no C++ kernel.
#pragma once

#include <ATen/core/Tensor.h>

namespace keyseat::nn {

inline at::Tensor select_rows(const at::Tensor& x, const at::Tensor& index) {
  if (!x.is_meta()) return x.index_select(0, index);
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = index.numel();
  return x.new_empty(shape);
}

}  // namespace keyseat::nn
