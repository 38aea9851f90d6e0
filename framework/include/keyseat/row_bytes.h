// Where the rows of a tensor lie in memory, for communicators and what records them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace keyseat {

// Bytes of one element of dimension 0 of a contiguous tensor of at least one dimension.
inline int64_t row_bytes(const at::Tensor& tensor) {
  auto bytes = static_cast<int64_t>(tensor.element_size());
  for (const int64_t size : tensor.sizes().slice(1)) bytes *= size;
  return bytes;
}

// The byte at which the part of each rank begins, and the one behind the last part.
inline std::vector<size_t> part_offsets(const std::vector<int64_t>& counts, int64_t row_bytes) {
  std::vector<size_t> offsets{0};
  for (const int64_t count : counts)
    offsets.push_back(offsets.back() + static_cast<size_t>(count * row_bytes));
  return offsets;
}

}  // namespace keyseat
