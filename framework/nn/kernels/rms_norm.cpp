// Kernels of RMSNorm.
#include "nn/kernels/rms_norm.h"

#include <cmath>

#include "nn/kernels/dispatch.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/rms_norm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h includes this file once per target.
#include "nn/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keyseat::nn::kernels {
namespace HWY_NAMESPACE {

template <typename T>
void rms_norm_forward(const RmsNormForward<T>& job) {
  const int64_t width = job.width;
  const float* w = job.w;
  for (int64_t row = 0; row < job.rows; ++row) {
    const T* x = job.x + row * width;
    T* y = job.y + row * width;
    FloatVector squares = hn::Zero(kFloat);
    each_vector(width, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector value = load(x + i, span);
      squares = hn::MulAdd(value, value, squares);
    });
    const float rstd = 1.0f / std::sqrt(sum_of(squares) / static_cast<float>(width) + job.eps);
    const FloatVector scale = hn::Set(kFloat, rstd);
    job.rstd[row] = rstd;
    each_vector(width, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector normal = round_to(x, hn::Mul(load(x + i, span), scale));
      store(hn::Mul(normal, load(w + i, span)), y + i, span);
    });
  }
}

template <typename T>
void rms_norm_backward(const RmsNormBackward<T>& job) {
  const int64_t width = job.width;
  const float* w = job.w;
  float* dw = job.dw;
  for (int64_t row = 0; row < job.rows; ++row) {
    const T *x = job.x + row * width, *dy = job.dy + row * width;
    const FloatVector scale = hn::Set(kFloat, job.rstd[row]);
    FloatVector product = hn::Zero(kFloat);
    each_vector(width, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector normal = hn::Mul(load(x + i, span), scale);
      const FloatVector g_normal = hn::Mul(load(dy + i, span), normal);
      product = hn::MulAdd(g_normal, load(w + i, span), product);
      if (dw) store(hn::Add(load(dw + i, span), g_normal), dw + i, span);
    });
    if (!job.dx) continue;
    T* dx = job.dx + row * width;
    const FloatVector mean = hn::Set(kFloat, sum_of(product) / static_cast<float>(width));
    each_vector(width, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector g = hn::Mul(load(dy + i, span), load(w + i, span));
      const FloatVector normal = hn::Mul(load(x + i, span), scale);
      store(hn::Mul(scale, hn::NegMulAdd(normal, mean, g)), dx + i, span);
    });
  }
}

void rms_norm_forward_float(const RmsNormForward<float>& job) { rms_norm_forward(job); }
void rms_norm_forward_bfloat16(const RmsNormForward<BFloat16>& job) { rms_norm_forward(job); }
void rms_norm_backward_float(const RmsNormBackward<float>& job) { rms_norm_backward(job); }
void rms_norm_backward_bfloat16(const RmsNormBackward<BFloat16>& job) { rms_norm_backward(job); }

}  // namespace HWY_NAMESPACE
}  // namespace keyseat::nn::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat::nn::kernels {

HWY_EXPORT(rms_norm_forward_float);
HWY_EXPORT(rms_norm_forward_bfloat16);
HWY_EXPORT(rms_norm_backward_float);
HWY_EXPORT(rms_norm_backward_bfloat16);

void run(const RmsNormForward<float>& job) { HWY_DYNAMIC_DISPATCH(rms_norm_forward_float)(job); }
void run(const RmsNormForward<BFloat16>& job) {
  HWY_DYNAMIC_DISPATCH(rms_norm_forward_bfloat16)(job);
}
void run(const RmsNormBackward<float>& job) { HWY_DYNAMIC_DISPATCH(rms_norm_backward_float)(job); }
void run(const RmsNormBackward<BFloat16>& job) {
  HWY_DYNAMIC_DISPATCH(rms_norm_backward_bfloat16)(job);
}

}  // namespace keyseat::nn::kernels
#endif  // HWY_ONCE
