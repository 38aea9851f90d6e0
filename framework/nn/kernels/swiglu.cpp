// Kernels of the SwiGLU activation.
#include "nn/kernels/swiglu.h"

#include <cmath>

#include "nn/kernels/dispatch.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/swiglu.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h includes this file once per target.
#include <hwy/contrib/math/math-inl.h>

#include "nn/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keyseat::nn::kernels {
namespace HWY_NAMESPACE {

// 1 / (1 + exp(-x)). The exponent is cut where fp32 would overflow.
HWY_INLINE FloatVector swiglu_sigmoid(FloatVector x) {
  const FloatVector one = hn::Set(kFloat, 1.0f);
  const FloatVector exponent = hn::Min(hn::Neg(x), hn::Set(kFloat, 88.0f));
  return hn::Div(one, hn::Add(one, hn::Exp(kFloat, exponent)));
}

template <typename T>
void swiglu_forward(const SwigluForward<T>& job) {
  const int64_t width = job.width;
  for (int64_t row = 0; row < job.rows; ++row) {
    const T *gate = job.gate_up + row * 2 * width, *up = gate + width;
    T* y = job.y + row * width;
    const FloatVector weight = hn::Set(kFloat, job.row_weight ? job.row_weight[row] : 1.0f);
    each_vector(width, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector g = load(gate + i, span);
      const FloatVector silu = hn::Mul(g, swiglu_sigmoid(g));
      store(hn::Mul(hn::Mul(silu, load(up + i, span)), weight), y + i, span);
    });
  }
}

template <typename T>
void swiglu_backward(const SwigluBackward<T>& job) {
  const int64_t width = job.width;
  const FloatVector one = hn::Set(kFloat, 1.0f);
  for (int64_t row = 0; row < job.rows; ++row) {
    const T *gate = job.gate_up + row * 2 * width, *up = gate + width;
    T *dgate = job.dgate_up + row * 2 * width, *dup = dgate + width;
    const T* dy = job.dy + row * width;
    const FloatVector weight = hn::Set(kFloat, job.row_weight ? job.row_weight[row] : 1.0f);
    FloatVector product = hn::Zero(kFloat);
    each_vector(width, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector g = load(gate + i, span), u = load(up + i, span);
      const FloatVector unweighted = load(dy + i, span), d = hn::Mul(unweighted, weight);
      const FloatVector sigmoid = swiglu_sigmoid(g), silu = hn::Mul(g, sigmoid);
      // silu'(g) = sigmoid + silu * (1 - sigmoid)
      const FloatVector slope = hn::MulAdd(silu, hn::Sub(one, sigmoid), sigmoid);
      product = hn::MulAdd(unweighted, hn::Mul(silu, u), product);
      store(hn::Mul(hn::Mul(d, u), slope), dgate + i, span);
      store(hn::Mul(d, silu), dup + i, span);
    });
    if (job.drow_weight) job.drow_weight[row] = sum_of(product);
  }
}

void swiglu_forward_float(const SwigluForward<float>& job) { swiglu_forward(job); }
void swiglu_forward_bfloat16(const SwigluForward<BFloat16>& job) { swiglu_forward(job); }
void swiglu_backward_float(const SwigluBackward<float>& job) { swiglu_backward(job); }
void swiglu_backward_bfloat16(const SwigluBackward<BFloat16>& job) { swiglu_backward(job); }

}  // namespace HWY_NAMESPACE
}  // namespace keyseat::nn::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat::nn::kernels {

HWY_EXPORT(swiglu_forward_float);
HWY_EXPORT(swiglu_forward_bfloat16);
HWY_EXPORT(swiglu_backward_float);
HWY_EXPORT(swiglu_backward_bfloat16);

void run(const SwigluForward<float>& job) { HWY_DYNAMIC_DISPATCH(swiglu_forward_float)(job); }
void run(const SwigluForward<BFloat16>& job) { HWY_DYNAMIC_DISPATCH(swiglu_forward_bfloat16)(job); }
void run(const SwigluBackward<float>& job) { HWY_DYNAMIC_DISPATCH(swiglu_backward_float)(job); }
void run(const SwigluBackward<BFloat16>& job) {
  HWY_DYNAMIC_DISPATCH(swiglu_backward_bfloat16)(job);
}

}  // namespace keyseat::nn::kernels
#endif  // HWY_ONCE
