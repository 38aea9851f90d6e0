// Kernels of the softmax inside attention.
#include "nn/kernels/attention_softmax.h"

#include <algorithm>
#include <cmath>

#include "nn/kernels/dispatch.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/attention_softmax.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h includes this file once per target.
#include <hwy/contrib/math/math-inl.h>

#include "nn/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keyseat::nn::kernels {
namespace HWY_NAMESPACE {

void attention_softmax(const AttentionSoftmax& job) {
  const FloatVector scale = hn::Set(kFloat, job.scale);
  const FloatVector lowest = hn::Set(kFloat, hwy::LowestValue<float>());
  for (int64_t row = 0; row < job.rows; ++row) {
    float* scores = job.scores + row * job.columns;
    const int64_t visible = std::min(job.columns, job.first_visible + row);
    FloatVector highest = lowest, sum = hn::Zero(kFloat);
    each_vector(visible, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector score = hn::Mul(load(scores + i, span), scale);
      highest = hn::Max(highest, keep_lanes(score, span, lowest));
      store(score, scores + i, span);
    });
    const FloatVector top = hn::MaxOfLanes(kFloat, highest);
    each_vector(visible, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector value = hn::Exp(kFloat, hn::Sub(load(scores + i, span), top));
      sum = hn::Add(sum, keep_lanes(value, span));
      store(value, scores + i, span);
    });
    const float total = sum_of(sum);
    job.log_sum[row] = hn::GetLane(top) + std::log(total);
    const FloatVector inverse = hn::Set(kFloat, 1.0f / total);
    each_vector(visible, [&](size_t i, auto span) HWY_ATTR {
      store(hn::Mul(load(scores + i, span), inverse), scores + i, span);
    });
    std::fill(scores + visible, scores + job.columns, 0.0f);
  }
}

void attention_softmax_backward(const AttentionSoftmaxBackward& job) {
  const FloatVector scale = hn::Set(kFloat, job.scale);
  for (int64_t row = 0; row < job.rows; ++row) {
    float *scores = job.scores + row * job.columns, *gradient = job.gradient + row * job.columns;
    const int64_t visible = std::min(job.columns, job.first_visible + row);
    const FloatVector log_sum = hn::Set(kFloat, job.log_sum[row]);
    const FloatVector delta = hn::Set(kFloat, job.delta[row]);
    each_vector(visible, [&](size_t i, auto span) HWY_ATTR {
      const FloatVector exponent = hn::MulSub(load(scores + i, span), scale, log_sum);
      const FloatVector weight = hn::Exp(kFloat, exponent);
      const FloatVector slope = hn::Mul(hn::Sub(load(gradient + i, span), delta), scale);
      store(weight, scores + i, span);
      store(hn::Mul(weight, slope), gradient + i, span);
    });
    std::fill(scores + visible, scores + job.columns, 0.0f);
    std::fill(gradient + visible, gradient + job.columns, 0.0f);
  }
}

void row_dots(const RowDots& job) {
  for (int64_t row = 0; row < job.rows; ++row) {
    const float *a = job.a + row * job.a_stride, *b = job.b + row * job.b_stride;
    FloatVector sum = hn::Zero(kFloat);
    each_vector(job.width, [&](size_t i, auto span) HWY_ATTR {
      sum = hn::MulAdd(load(a + i, span), load(b + i, span), sum);
    });
    job.delta[row] = sum_of(sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace keyseat::nn::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat::nn::kernels {

HWY_EXPORT(attention_softmax);
HWY_EXPORT(attention_softmax_backward);
HWY_EXPORT(row_dots);

void run(const AttentionSoftmax& job) { HWY_DYNAMIC_DISPATCH(attention_softmax)(job); }
void run(const AttentionSoftmaxBackward& job) {
  HWY_DYNAMIC_DISPATCH(attention_softmax_backward)(job);
}
void run(const RowDots& job) { HWY_DYNAMIC_DISPATCH(row_dots)(job); }

}  // namespace keyseat::nn::kernels
#endif  // HWY_ONCE
