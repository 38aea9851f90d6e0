#include "train/grad_norm_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "train/grad_norm_kernel.cpp"
// Vectors without a size of their own cannot stand in an array.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace keyseat {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kSums = 16;

double sum_squares(const float* values, size_t count) {
  const hn::CappedTag<double, kSums> d;
  const hn::Rebind<float, decltype(d)> d32;
  constexpr size_t kLanes = hn::MaxLanes(d);
  constexpr size_t kVectors = kSums / kLanes;
  decltype(hn::Zero(d)) sums[kVectors];
  for (size_t k = 0; k < kVectors; ++k) sums[k] = hn::Zero(d);
  size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (size_t k = 0; k < kVectors; ++k) {
      const auto x = hn::PromoteTo(d, hn::LoadU(d32, values + i + k * kLanes));
      sums[k] = hn::MulAdd(x, x, sums[k]);
    }
  }
  HWY_ALIGN double lanes[kSums];
  for (size_t k = 0; k < kVectors; ++k) hn::Store(sums[k], d, lanes + k * kLanes);
  for (size_t k = 0; i + k < count; ++k) {
    const double x = static_cast<double>(values[i + k]);
    lanes[k] += x * x;
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace keyseat
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat {

HWY_EXPORT(sum_squares);

double sum_of_squares_chunk(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(sum_squares)(values, count);
}

double sum_of_squares_chunk_naive(const float* values, size_t count) {
  double lanes[16] = {};
  for (size_t i = 0; i < count; ++i) {
    lanes[i % 16] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

}  // namespace keyseat
#endif
