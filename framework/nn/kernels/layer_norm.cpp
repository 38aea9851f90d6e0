// Kernels of LayerNorm.
#include "nn/kernels/layer_norm.h"

#include <cmath>

#include "nn/kernels/dispatch.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/layer_norm.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h includes this file once per target.
#include "nn/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keyseat::nn::kernels {
namespace HWY_NAMESPACE {

template <typename T>
void layer_norm_forward(const LayerNormForward<T>& job) {
  const int64_t width = job.width;
  const float *w = job.w, *b = job.b;
  for (int64_t row = 0; row < job.rows; ++row) {
    const T* x = job.x + row * width;
    T* y = job.y + row * width;
    FloatVector sum = hn::Zero(kFloat), squares = hn::Zero(kFloat);
    each_vector(width,
                [&](size_t i, auto span) HWY_ATTR { sum = hn::Add(sum, load(x + i, span)); });
    const FloatVector mean = hn::Set(kFloat, sum_of(sum) / static_cast<float>(width));
    // A second pass over the row, because the difference of two sums loses digits.
    each_vector(width, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector centred = hn::Sub(load(x + i, span), mean);
      squares = hn::Add(squares, keep_lanes(hn::Mul(centred, centred), span));
    });
    const float rstd = 1.0f / std::sqrt(sum_of(squares) / static_cast<float>(width) + job.eps);
    const FloatVector scale = hn::Set(kFloat, rstd);
    job.mean[row] = hn::GetLane(mean);
    job.rstd[row] = rstd;
    each_vector(width, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector normal = hn::Mul(hn::Sub(load(x + i, span), mean), scale);
      store(hn::MulAdd(normal, load(w + i, span), load(b + i, span)), y + i, span);
    });
  }
}

template <typename T>
void layer_norm_backward(const LayerNormBackward<T>& job) {
  const int64_t width = job.width;
  const float* w = job.w;
  float *dw = job.dw, *db = job.db;
  for (int64_t row = 0; row < job.rows; ++row) {
    const T *x = job.x + row * width, *dy = job.dy + row * width;
    const FloatVector mean = hn::Set(kFloat, job.mean[row]);
    const FloatVector scale = hn::Set(kFloat, job.rstd[row]);
    FloatVector sum = hn::Zero(kFloat), product = hn::Zero(kFloat);
    each_vector(width, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector g = load(dy + i, span), gw = hn::Mul(g, load(w + i, span));
      const FloatVector normal = hn::Mul(hn::Sub(load(x + i, span), mean), scale);
      sum = hn::Add(sum, gw);
      product = hn::MulAdd(gw, normal, product);
      if (dw) store(hn::MulAdd(g, normal, load(dw + i, span)), dw + i, span);
      if (db) store(hn::Add(load(db + i, span), g), db + i, span);
    });
    if (!job.dx) continue;
    T* dx = job.dx + row * width;
    const FloatVector mean_g = hn::Set(kFloat, sum_of(sum) / static_cast<float>(width));
    const FloatVector mean_product = hn::Set(kFloat, sum_of(product) / static_cast<float>(width));
    each_vector(width, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector gw = hn::Mul(load(dy + i, span), load(w + i, span));
      const FloatVector normal = hn::Mul(hn::Sub(load(x + i, span), mean), scale);
      const FloatVector centred = hn::NegMulAdd(normal, mean_product, hn::Sub(gw, mean_g));
      store(hn::Mul(scale, centred), dx + i, span);
    });
  }
}

void layer_norm_forward_float(const LayerNormForward<float>& job) { layer_norm_forward(job); }
void layer_norm_forward_bfloat16(const LayerNormForward<BFloat16>& job) { layer_norm_forward(job); }
void layer_norm_backward_float(const LayerNormBackward<float>& job) { layer_norm_backward(job); }
void layer_norm_backward_bfloat16(const LayerNormBackward<BFloat16>& job) {
  layer_norm_backward(job);
}

}  // namespace HWY_NAMESPACE
}  // namespace keyseat::nn::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat::nn::kernels {

HWY_EXPORT(layer_norm_forward_float);
HWY_EXPORT(layer_norm_forward_bfloat16);
HWY_EXPORT(layer_norm_backward_float);
HWY_EXPORT(layer_norm_backward_bfloat16);

void run(const LayerNormForward<float>& job) {
  HWY_DYNAMIC_DISPATCH(layer_norm_forward_float)(job);
}
void run(const LayerNormForward<BFloat16>& job) {
  HWY_DYNAMIC_DISPATCH(layer_norm_forward_bfloat16)(job);
}
void run(const LayerNormBackward<float>& job) {
  HWY_DYNAMIC_DISPATCH(layer_norm_backward_float)(job);
}
void run(const LayerNormBackward<BFloat16>& job) {
  HWY_DYNAMIC_DISPATCH(layer_norm_backward_bfloat16)(job);
}

}  // namespace keyseat::nn::kernels
#endif  // HWY_ONCE
