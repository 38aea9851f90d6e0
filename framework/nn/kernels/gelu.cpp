// Kernels of the tanh form of GELU.
#include "nn/kernels/gelu.h"

#include <cmath>

#include "nn/kernels/dispatch.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/gelu.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h includes this file once per target.
#include <hwy/contrib/math/math-inl.h>

#include "nn/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keyseat::nn::kernels {
namespace HWY_NAMESPACE {

constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2 / pi)
constexpr float kCube = 0.044715f;

// Past 10 the gate is 0 or 1 in fp32, and exp(2u) is just below the fp32 maximum.
HWY_INLINE FloatVector gelu_cut(FloatVector x) {
  return hn::Max(hn::Min(x, hn::Set(kFloat, 10.0f)), hn::Set(kFloat, -10.0f));
}

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)) for a cut x.
HWY_INLINE FloatVector gelu_gate(FloatVector x) {
  const FloatVector one = hn::Set(kFloat, 1.0f);
  const FloatVector inner = hn::MulAdd(hn::Mul(x, x), hn::Set(kFloat, kCube), one);
  const FloatVector minus_2u = hn::Mul(hn::Mul(x, inner), hn::Set(kFloat, -kTwiceRoot));
  return hn::Div(one, hn::Add(one, hn::Exp(kFloat, minus_2u)));
}

template <typename T>
void gelu_tanh_forward(const GeluTanhForward<T>& job) {
  each_vector(job.count, [&](size_t i, auto span) HWY_ATTR {
    const FloatVector x = load(job.x + i, span);
    store(hn::Mul(x, gelu_gate(gelu_cut(x))), job.y + i, span);
  });
}

template <typename T>
void gelu_tanh_backward(const GeluTanhBackward<T>& job) {
  const FloatVector one = hn::Set(kFloat, 1.0f);
  const FloatVector root = hn::Set(kFloat, kTwiceRoot);
  const FloatVector root_cube = hn::Set(kFloat, 3.0f * kCube * kTwiceRoot);
  each_vector(job.count, [&](size_t i, auto span) HWY_ATTR {
    const FloatVector x = gelu_cut(load(job.x + i, span)), gate = gelu_gate(x);
    // d(2u)/dx = 2 sqrt(2 / pi) * (1 + 3 * 0.044715 x^2)
    const FloatVector slope = hn::Mul(x, hn::MulAdd(hn::Mul(x, x), root_cube, root));
    const FloatVector change = hn::Mul(hn::Mul(gate, hn::Sub(one, gate)), slope);
    store(hn::Mul(load(job.dy + i, span), hn::Add(gate, change)), job.dx + i, span);
  });
}

void gelu_tanh_forward_float(const GeluTanhForward<float>& job) { gelu_tanh_forward(job); }
void gelu_tanh_forward_bfloat16(const GeluTanhForward<BFloat16>& job) { gelu_tanh_forward(job); }
void gelu_tanh_backward_float(const GeluTanhBackward<float>& job) { gelu_tanh_backward(job); }
void gelu_tanh_backward_bfloat16(const GeluTanhBackward<BFloat16>& job) { gelu_tanh_backward(job); }

}  // namespace HWY_NAMESPACE
}  // namespace keyseat::nn::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat::nn::kernels {

HWY_EXPORT(gelu_tanh_forward_float);
HWY_EXPORT(gelu_tanh_forward_bfloat16);
HWY_EXPORT(gelu_tanh_backward_float);
HWY_EXPORT(gelu_tanh_backward_bfloat16);

void run(const GeluTanhForward<float>& job) { HWY_DYNAMIC_DISPATCH(gelu_tanh_forward_float)(job); }
void run(const GeluTanhForward<BFloat16>& job) {
  HWY_DYNAMIC_DISPATCH(gelu_tanh_forward_bfloat16)(job);
}
void run(const GeluTanhBackward<float>& job) {
  HWY_DYNAMIC_DISPATCH(gelu_tanh_backward_float)(job);
}
void run(const GeluTanhBackward<BFloat16>& job) {
  HWY_DYNAMIC_DISPATCH(gelu_tanh_backward_bfloat16)(job);
}

}  // namespace keyseat::nn::kernels
#endif  // HWY_ONCE
