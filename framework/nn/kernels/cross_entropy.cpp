// Kernel of the cross-entropy. A row is read three times, but past the first it comes from the
// second level cache: 128 KiB at a vocabulary of 32,768. One exponential per logit.
#include "nn/kernels/cross_entropy.h"

#include <cmath>

#include "nn/kernels/dispatch.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h includes this file once per target.
#include <hwy/contrib/math/math-inl.h>

#include "nn/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keyseat::nn::kernels {
namespace HWY_NAMESPACE {

// Lanes past the end of a row become those of `filler`.
HWY_INLINE FloatVector cross_entropy_fill(FloatVector value, FloatVector, Whole) { return value; }
HWY_INLINE FloatVector cross_entropy_fill(FloatVector value, FloatVector filler, Part part) {
  return hn::IfThenElse(hn::FirstN(kFloat, part.lanes), value, filler);
}

HWY_INLINE float cross_entropy_maximum(const float* x, size_t size) {
  const FloatVector first = hn::Set(kFloat, x[0]);
  FloatVector maximum = first;
  each_vector(size, [&](size_t i, auto span) HWY_ATTR {
    maximum = hn::Max(maximum, cross_entropy_fill(load(x + i, span), first, span));
  });
  return hn::GetLane(hn::MaxOfLanes(kFloat, maximum));
}

// Sum of exp(x - maximum); with kWrite the terms are written over x. Four sums side by side hide
// the latency of the addition, and each holds a quarter of the terms, which keeps the rounding
// error of long rows small.
template <bool kWrite>
HWY_INLINE float cross_entropy_sum(float* x, size_t size, float maximum) {
  const FloatVector shift = hn::Set(kFloat, maximum);
  FloatVector sums[4] = {hn::Zero(kFloat), hn::Zero(kFloat), hn::Zero(kFloat), hn::Zero(kFloat)};
  const auto term = [&](size_t i, auto span) HWY_ATTR {
    const FloatVector value = hn::Exp(kFloat, hn::Sub(load(x + i, span), shift));
    if constexpr (kWrite) store(value, x + i, span);
    return keep_lanes(value, span);
  };
  const size_t lanes = hn::Lanes(kFloat), step = 4 * lanes, whole = size / step * step;
  for (size_t i = 0; i < whole; i += step) {
    for (size_t j = 0; j < 4; ++j) sums[j] = hn::Add(sums[j], term(i + j * lanes, Whole{}));
  }
  each_vector(size - whole, [&](size_t i, auto span)
                                HWY_ATTR { sums[0] = hn::Add(sums[0], term(whole + i, span)); });
  return sum_of(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

void cross_entropy_rows(const CrossEntropyRows& job) {
  const size_t size = job.vocabulary;
  for (int64_t row = 0; row < job.rows; ++row) {
    float* x = job.logits + row * job.vocabulary;
    const int64_t label = job.labels[row];
    const float target = x[label];
    const float maximum = cross_entropy_maximum(x, size);
    const float sum = job.gradient ? cross_entropy_sum<true>(x, size, maximum)
                                   : cross_entropy_sum<false>(x, size, maximum);
    job.loss[row] = std::log(sum) + (maximum - target);
    if (!job.gradient) continue;
    const FloatVector scale = hn::Set(kFloat, 1 / sum);
    each_vector(size, [&](size_t i, auto span)
                          HWY_ATTR { store(hn::Mul(load(x + i, span), scale), x + i, span); });
    x[label] -= 1;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace keyseat::nn::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat::nn::kernels {

HWY_EXPORT(cross_entropy_rows);

void run(const CrossEntropyRows& job) { HWY_DYNAMIC_DISPATCH(cross_entropy_rows)(job); }

}  // namespace keyseat::nn::kernels
#endif  // HWY_ONCE
