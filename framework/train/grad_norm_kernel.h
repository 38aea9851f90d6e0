#pragma once

#include <cstddef>

namespace keyseat {

// Sum of squares in fp64 over 16 fixed partial sums: element i goes to sum i mod 16. A square of an
// fp32 number is exact in fp64, so fused and plain multiply-add agree, and so do all vector widths.
double sum_of_squares_chunk(const float* values, size_t count);
double sum_of_squares_chunk_naive(const float* values, size_t count);

}  // namespace keyseat
