// Histograms of sizes, which add up over steps. Free of LibTorch.
#pragma once

#include <bit>
#include <cstdint>
#include <map>

namespace keyseat::train {

// Lower end of a bucket -> how many. Values below 16 have buckets of their own, larger ones eight
// per octave.
using Histogram = std::map<int64_t, int64_t>;

inline int64_t bucket_width(int64_t value) {
  return value < 16 ? 1 : int64_t{1} << (std::bit_width(static_cast<uint64_t>(value)) - 4);
}
inline int64_t bucket_of(int64_t value) { return value - value % bucket_width(value); }

}  // namespace keyseat::train
