// Random numbers that are a function of what they are for, not of who asks first: any layout and
// any number of threads get the same ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "keyseat/export.h"

namespace keyseat {

// A seed for one use: the parameter's or region's name, a sample number, ...
KEYSEAT_API uint64_t derive_seed(int64_t seed, std::string_view purpose);

// Fills a contiguous fp32 CPU tensor with elements first, first + 1, ... of the endless sequence of
// normal numbers (mean 0) of this seed. Parallel.
KEYSEAT_API void fill_normal(const at::Tensor& tensor, uint64_t seed, double standard_deviation,
                             int64_t first = 0);

}  // namespace keyseat
