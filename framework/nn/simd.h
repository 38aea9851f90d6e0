// Bridges between tensors and the torch-free SIMD kernels.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "nn/kernels/element.h"

namespace keyseat::nn {

// Tensors the kernels take (once contiguous).
inline bool simd_takes(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// Calls call(T{}) with the element type of x.
template <typename Call>
void with_element(const at::Tensor& x, const Call& call) {
  if (x.scalar_type() == at::kFloat) {
    call(float{});
  } else {
    call(kernels::BFloat16{});
  }
}

template <typename T>
const T* read(const at::Tensor& x) {
  return static_cast<const T*>(x.const_data_ptr());
}
template <typename T>
T* written(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.mutable_data_ptr()) : nullptr;
}

// Weights and statistics reach kernels as contiguous fp32.
inline at::Tensor as_fp32(const at::Tensor& x) { return x.to(at::kFloat).contiguous(); }

inline int64_t rows_of(const at::Tensor& x) { return x.numel() / std::max<int64_t>(x.size(-1), 1); }

// Rows of `width` that are worth a thread.
inline int64_t row_grain(int64_t width) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(width, 1));
}

// Calls body(begin, end, sums) for one range of rows per thread. sums[i] is where the range adds
// what belongs to targets[i] (`width` floats, or null): a scratch row of its own that is added to
// the target afterwards, in the order of the ranges.
template <typename Body>
void sum_over_rows(int64_t rows, int64_t width, const std::vector<float*>& targets,
                   const Body& body) {
  const int64_t grain = row_grain(width);
  const int64_t ranges = std::min<int64_t>(at::get_num_threads(), (rows + grain - 1) / grain);
  if (ranges <= 1) {
    body(0, rows, targets);
    return;
  }
  const int64_t count = targets.size();
  std::vector<float> scratch(ranges * count * width, 0.0f);
  at::parallel_for(0, ranges, 1, [&](int64_t first, int64_t last) {
    for (int64_t range = first; range < last; ++range) {
      std::vector<float*> sums(count);
      for (int64_t i = 0; i < count; ++i)
        sums[i] = targets[i] ? scratch.data() + (range * count + i) * width : nullptr;
      body(rows * range / ranges, rows * (range + 1) / ranges, sums);
    }
  });
  for (int64_t range = 0; range < ranges; ++range)
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; targets[i] && j < width; ++j)
        targets[i][j] += scratch[(range * count + i) * width + j];
}

}  // namespace keyseat::nn
