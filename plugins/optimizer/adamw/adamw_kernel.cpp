#include "adamw_kernel.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "adamw_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace keyseat_optimizer_adamw {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// One vector of every array.
template <class D>
HWY_INLINE void update_vector(D d, const Coefficients& c, float* HWY_RESTRICT master,
                              const float* HWY_RESTRICT grad, float* HWY_RESTRICT m,
                              float* HWY_RESTRICT v, uint16_t* HWY_RESTRICT compute) {
  const auto g = hn::Mul(hn::LoadU(d, grad), hn::Set(d, c.grad_scale));
  const auto old_m = hn::LoadU(d, m);
  const auto new_m = hn::MulAdd(hn::Set(d, c.one_minus_beta1), hn::Sub(g, old_m), old_m);
  const auto g_share = hn::Mul(hn::Set(d, c.one_minus_beta2), g);
  const auto new_v = hn::MulAdd(g_share, g, hn::Mul(hn::LoadU(d, v), hn::Set(d, c.beta2)));
  const auto denominator =
      hn::MulAdd(hn::Sqrt(new_v), hn::Set(d, c.inverse_correction2), hn::Set(d, c.eps));
  const auto kept = hn::Mul(hn::LoadU(d, master), hn::Set(d, c.keep));
  const auto updated = hn::NegMulAdd(hn::Set(d, c.step_size), hn::Div(new_m, denominator), kept);
  hn::StoreU(new_m, d, m);
  hn::StoreU(new_v, d, v);
  hn::StoreU(updated, d, master);
  if (compute == nullptr) return;
  // Round to nearest, ties to even; a NaN keeps its sign and becomes quiet.
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::BitCast(du, updated);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  const auto nan = hn::RebindMask(du, hn::IsNaN(updated));
  const auto half = hn::IfThenElse(nan, quiet, rounded);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, half)), d16, compute);
}

void update(const Coefficients& c, size_t count, float* master, const float* grad, float* m,
            float* v, uint16_t* compute) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    update_vector(d, c, master + i, grad + i, m + i, v + i,
                  compute == nullptr ? nullptr : compute + i);
  }
  const size_t rest = count - i;
  if (rest == 0) return;
  // The tail takes the same operations on a padded copy.
  constexpr size_t kMost = hn::MaxLanes(d);
  float master_tail[kMost] = {}, grad_tail[kMost] = {}, m_tail[kMost] = {}, v_tail[kMost] = {};
  uint16_t compute_tail[kMost] = {};
  std::memcpy(master_tail, master + i, rest * sizeof(float));
  std::memcpy(grad_tail, grad + i, rest * sizeof(float));
  std::memcpy(m_tail, m + i, rest * sizeof(float));
  std::memcpy(v_tail, v + i, rest * sizeof(float));
  update_vector(d, c, master_tail, grad_tail, m_tail, v_tail, compute_tail);
  std::memcpy(master + i, master_tail, rest * sizeof(float));
  std::memcpy(m + i, m_tail, rest * sizeof(float));
  std::memcpy(v + i, v_tail, rest * sizeof(float));
  if (compute != nullptr) std::memcpy(compute + i, compute_tail, rest * sizeof(uint16_t));
}

}  // namespace HWY_NAMESPACE
}  // namespace keyseat_optimizer_adamw
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat_optimizer_adamw {

HWY_EXPORT(update);

void update_simd(const Coefficients& c, size_t count, float* master, const float* grad, float* m,
                 float* v, uint16_t* compute) {
  HWY_DYNAMIC_DISPATCH(update)(c, count, master, grad, m, v, compute);
}

void update_naive(const Coefficients& c, size_t count, float* master, const float* grad, float* m,
                  float* v, uint16_t* compute) {
  for (size_t i = 0; i < count; ++i) {
    const float g = grad[i] * c.grad_scale;
    m[i] += c.one_minus_beta1 * (g - m[i]);
    v[i] = v[i] * c.beta2 + c.one_minus_beta2 * g * g;
    const float denominator = std::sqrt(v[i]) * c.inverse_correction2 + c.eps;
    master[i] = master[i] * c.keep - c.step_size * (m[i] / denominator);
    if (compute == nullptr) continue;
    uint32_t bits;
    std::memcpy(&bits, &master[i], sizeof(bits));
    compute[i] = static_cast<uint16_t>(
        std::isnan(master[i]) ? (bits >> 16 | 0x40u) : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
  }
}

}  // namespace keyseat_optimizer_adamw
#endif
