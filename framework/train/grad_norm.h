// The global gradient norm.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "keyseat/export.h"

namespace keyseat {

// Sum of the squares of all elements, accumulated in fp64. Bitwise the same for any number of
// threads and on every instruction set. CPU tensors are contiguous fp32.
KEYSEAT_API double sum_of_squares(const std::vector<at::Tensor>& tensors);

// The same for several lists at once, faster than one by one.
KEYSEAT_API std::vector<double> sums_of_squares(const std::vector<std::vector<at::Tensor>>& lists);

}  // namespace keyseat
