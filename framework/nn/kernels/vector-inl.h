// Vector helpers of the kernels, compiled once per target: rows of fp32 or bf16 are read and
// written as vectors of fp32, with the part of a vector at the end of a row.

// Include guard (still compiled once per target)
#if defined(KEYSEAT_NN_KERNELS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEYSEAT_NN_KERNELS_VECTOR_INL_H_
#undef KEYSEAT_NN_KERNELS_VECTOR_INL_H_
#else
#define KEYSEAT_NN_KERNELS_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "nn/kernels/element.h"

HWY_BEFORE_NAMESPACE();
namespace keyseat::nn::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;
constexpr FloatTag kFloat{};

// A whole vector, or the first `lanes` of one.
struct Whole {};
struct Part {
  size_t lanes;
};

HWY_INLINE FloatVector load(const float* from, Whole) { return hn::LoadU(kFloat, from); }
HWY_INLINE FloatVector load(const BFloat16* from, Whole) {
  const hn::RebindToUnsigned<FloatTag> bits;
  const hn::Rebind<uint16_t, FloatTag> halves;
  const auto half = hn::LoadU(halves, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(kFloat, hn::ShiftLeft<16>(hn::PromoteTo(bits, half)));
}

// The bits of bf16 values in the low halves; rounds to nearest even, keeps NaN.
HWY_INLINE hn::Vec<hn::RebindToUnsigned<FloatTag>> rounded_bits(FloatVector value) {
  const hn::RebindToUnsigned<FloatTag> bits;
  const auto exact = hn::BitCast(bits, value);
  const auto odd = hn::And(hn::ShiftRight<16>(exact), hn::Set(bits, 1));
  const auto rounded = hn::Add(exact, hn::Add(odd, hn::Set(bits, 0x7FFF)));
  const auto not_a_number = hn::RebindMask(bits, hn::IsNaN(value));
  return hn::ShiftRight<16>(hn::IfThenElse(not_a_number, hn::Set(bits, 0x7FC00000u), rounded));
}

HWY_INLINE void store(FloatVector value, float* to, Whole) { hn::StoreU(value, kFloat, to); }
HWY_INLINE void store(FloatVector value, BFloat16* to, Whole) {
  const hn::RebindToSigned<FloatTag> integers;
  const hn::Rebind<uint16_t, FloatTag> halves;
  const auto half = hn::DemoteTo(halves, hn::BitCast(integers, rounded_bits(value)));
  hn::StoreU(half, halves, reinterpret_cast<uint16_t*>(to));
}

// Lanes past the end read as zero.
template <typename T>
HWY_INLINE FloatVector load(const T* from, Part part) {
  T buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(buffer, from, part.lanes * sizeof(T));
  return load(buffer, Whole{});
}

template <typename T>
HWY_INLINE void store(FloatVector value, T* to, Part part) {
  T buffer[HWY_MAX_BYTES / sizeof(float)];
  store(value, buffer, Whole{});
  std::memcpy(to, buffer, part.lanes * sizeof(T));
}

// What is left of a value after a store as T.
HWY_INLINE FloatVector round_to(const float*, FloatVector value) { return value; }
HWY_INLINE FloatVector round_to(const BFloat16*, FloatVector value) {
  return hn::BitCast(kFloat, hn::ShiftLeft<16>(rounded_bits(value)));
}

// `fill` in the lanes past the end of the row.
HWY_INLINE FloatVector keep_lanes(FloatVector value, Whole, FloatVector) { return value; }
HWY_INLINE FloatVector keep_lanes(FloatVector value, Part part, FloatVector fill) {
  return hn::IfThenElse(hn::FirstN(kFloat, part.lanes), value, fill);
}
// Zero there.
template <typename Span>
HWY_INLINE FloatVector keep_lanes(FloatVector value, Span span) {
  return keep_lanes(value, span, hn::Zero(kFloat));
}

// Calls body(offset, Whole or Part) for the vectors of a row.
template <typename Body>
HWY_INLINE void each_vector(size_t width, const Body& body) {
  const size_t lanes = hn::Lanes(kFloat);
  size_t offset = 0;
  for (; offset + lanes <= width; offset += lanes) body(offset, Whole{});
  if (offset < width) body(offset, Part{width - offset});
}

HWY_INLINE float sum_of(FloatVector value) { return hn::GetLane(hn::SumOfLanes(kFloat, value)); }

}  // namespace HWY_NAMESPACE
}  // namespace keyseat::nn::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
