#include "nn/cross_entropy_kernels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cross_entropy_kernels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace keyseat::nn::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
T row_maximum(const T* HWY_RESTRICT x, int64_t size) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto maximum = hn::Set(d, x[0]);
  int64_t v = 0;
  for (; v + lanes <= size; v += lanes) maximum = hn::Max(maximum, hn::LoadU(d, x + v));
  T result = hn::GetLane(hn::MaxOfLanes(d, maximum));
  for (; v < size; ++v) result = std::max(result, x[v]);
  return result;
}

// Sum of exp(x - maximum); kStore also writes the terms over x. Four sums side by side hide the
// latency of the addition and keep the rounding error of long rows small.
template <bool kStore, typename T>
T exponential_sum(T* HWY_RESTRICT x, int64_t size, T maximum) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto shift = hn::Set(d, maximum);
  const auto term = [&](int64_t at) HWY_ATTR {
    const auto value = hn::Exp(d, hn::Sub(hn::LoadU(d, x + at), shift));
    if constexpr (kStore) hn::StoreU(value, d, x + at);
    return value;
  };
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  int64_t v = 0;
  for (; v + 4 * lanes <= size; v += 4 * lanes) {
    sum0 = hn::Add(sum0, term(v));
    sum1 = hn::Add(sum1, term(v + lanes));
    sum2 = hn::Add(sum2, term(v + 2 * lanes));
    sum3 = hn::Add(sum3, term(v + 3 * lanes));
  }
  for (; v + lanes <= size; v += lanes) sum0 = hn::Add(sum0, term(v));
  const auto sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  T result = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; v < size; ++v) {
    const T value = std::exp(x[v] - maximum);
    if constexpr (kStore) x[v] = value;
    result += value;
  }
  return result;
}

template <typename T>
void scale_row(T* HWY_RESTRICT x, int64_t size, T factor) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factors = hn::Set(d, factor);
  int64_t v = 0;
  for (; v + lanes <= size; v += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + v), factors), d, x + v);
  }
  for (; v < size; ++v) x[v] *= factor;
}

template <typename T>
void rows_of(const LogitRows<T>& problem, int64_t begin, int64_t end) {
  const int64_t size = problem.vocabulary;
  for (int64_t row = begin; row < end; ++row) {
    T* x = problem.logits + row * size;
    const int64_t label = problem.labels[row];
    const T target = x[label];
    const T maximum = row_maximum(x, size);
    const T sum = problem.gradient ? exponential_sum<true>(x, size, maximum)
                                   : exponential_sum<false>(x, size, maximum);
    problem.losses[row] = std::log(sum) + (maximum - target);
    if (!problem.gradient) continue;
    scale_row(x, size, 1 / sum);
    x[label] -= 1;
  }
}

void rows_f32(const LogitRows<float>& problem, int64_t begin, int64_t end) {
  rows_of(problem, begin, end);
}

void rows_f64(const LogitRows<double>& problem, int64_t begin, int64_t end) {
  rows_of(problem, begin, end);
}

}  // namespace keyseat::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat::nn {

HWY_EXPORT(rows_f32);
HWY_EXPORT(rows_f64);

void cross_entropy_rows(const LogitRows<float>& problem, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(rows_f32)(problem, begin, end);
}

void cross_entropy_rows(const LogitRows<double>& problem, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(rows_f64)(problem, begin, end);
}

}  // namespace keyseat::nn
#endif
