#include "nn/row_kernels.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/row_kernels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace keyseat::nn::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The choices are the inner loop: each output element is written once, and the k input rows are
// read side by side, which the prefetcher of every current CPU follows for k <= 16.
template <typename T>
void add_rows(const RowSum& problem, const T* HWY_RESTRICT input, int64_t begin, int64_t end,
              T* HWY_RESTRICT output) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = begin; row < end; ++row) {
    const int64_t* index = problem.index + row * problem.choices;
    T* y = output + row * problem.width;
    int64_t h = 0;
    for (; h + lanes <= problem.width; h += lanes) {
      auto sum = hn::Zero(d);
      for (int64_t k = 0; k < problem.choices; ++k) {
        if (index[k] >= 0) sum = hn::Add(sum, hn::LoadU(d, input + index[k] * problem.width + h));
      }
      hn::StoreU(sum, d, y + h);
    }
    for (; h < problem.width; ++h) {
      T sum = 0;
      for (int64_t k = 0; k < problem.choices; ++k) {
        if (index[k] >= 0) sum += input[index[k] * problem.width + h];
      }
      y[h] = sum;
    }
  }
}

float float_of_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// To nearest, ties to even, as LibTorch rounds; a NaN stays one.
uint16_t bf16_of_float(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, sizeof(wide));
  if (value != value) return 0x7FC0;
  return static_cast<uint16_t>((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16);
}

void add_rows_f32_simd(const RowSum& problem, const float* input, int64_t begin, int64_t end,
                       float* output) {
  add_rows(problem, input, begin, end, output);
}

void add_rows_f64_simd(const RowSum& problem, const double* input, int64_t begin, int64_t end,
                       double* output) {
  add_rows(problem, input, begin, end, output);
}

void add_rows_bf16_simd(const RowSum& problem, const uint16_t* HWY_RESTRICT input, int64_t begin,
                        int64_t end, uint16_t* HWY_RESTRICT output) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Rebind<uint16_t, decltype(df)> dh;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto half = hn::Set(du, 0x7FFF);
  const auto one = hn::Set(du, 1);
  const auto nan = hn::Set(du, 0x7FC0);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t* index = problem.index + row * problem.choices;
    uint16_t* y = output + row * problem.width;
    int64_t h = 0;
    for (; h + lanes <= problem.width; h += lanes) {
      auto sum = hn::Zero(df);
      for (int64_t k = 0; k < problem.choices; ++k) {
        if (index[k] < 0) continue;
        const auto bits = hn::LoadU(dh, input + index[k] * problem.width + h);
        sum = hn::Add(sum, hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, bits))));
      }
      const auto wide = hn::BitCast(du, sum);
      const auto odd = hn::And(hn::ShiftRight<16>(wide), one);
      const auto rounded = hn::ShiftRight<16>(hn::Add(wide, hn::Add(half, odd)));
      const auto kept = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(sum)), nan, rounded);
      hn::StoreU(hn::DemoteTo(dh, hn::BitCast(hn::RebindToSigned<decltype(du)>(), kept)), dh,
                 y + h);
    }
    for (; h < problem.width; ++h) {
      float sum = 0;
      for (int64_t k = 0; k < problem.choices; ++k) {
        if (index[k] >= 0) sum += float_of_bf16(input[index[k] * problem.width + h]);
      }
      y[h] = bf16_of_float(sum);
    }
  }
}

}  // namespace keyseat::nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat::nn {

HWY_EXPORT(add_rows_f32_simd);
HWY_EXPORT(add_rows_f64_simd);
HWY_EXPORT(add_rows_bf16_simd);

void copy_rows(const std::byte* input, const int64_t* index, int64_t begin, int64_t end,
               size_t bytes, std::byte* output) {
  for (int64_t row = begin; row < end; ++row) {
    std::byte* y = output + static_cast<size_t>(row) * bytes;
    if (index[row] < 0) {
      std::memset(y, 0, bytes);
    } else {
      std::memcpy(y, input + static_cast<size_t>(index[row]) * bytes, bytes);
    }
  }
}

void add_rows_f32(const RowSum& problem, const float* input, int64_t begin, int64_t end,
                  float* output) {
  HWY_DYNAMIC_DISPATCH(add_rows_f32_simd)(problem, input, begin, end, output);
}

void add_rows_f64(const RowSum& problem, const double* input, int64_t begin, int64_t end,
                  double* output) {
  HWY_DYNAMIC_DISPATCH(add_rows_f64_simd)(problem, input, begin, end, output);
}

void add_rows_bf16(const RowSum& problem, const uint16_t* input, int64_t begin, int64_t end,
                   uint16_t* output) {
  HWY_DYNAMIC_DISPATCH(add_rows_bf16_simd)(problem, input, begin, end, output);
}

}  // namespace keyseat::nn
#endif
