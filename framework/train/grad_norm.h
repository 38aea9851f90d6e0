// The global gradient norm.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "keyseat/export.h"

namespace keyseat {

// Sum of the squares of all elements, accumulated in fp64. Bitwise the same for any number of
// threads and on every instruction set. CPU tensors are contiguous fp32.
KEYSEAT_API double sum_of_squares(const std::vector<at::Tensor>& tensors);

}  // namespace keyseat
