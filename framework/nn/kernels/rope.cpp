// Kernel of rotary position embeddings.
#include "nn/kernels/rope.h"

#include <cmath>

#include "nn/kernels/dispatch.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/rope.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h includes this file once per target.
#include "nn/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keyseat::nn::kernels {
namespace HWY_NAMESPACE {

template <typename T>
void rope(const Rope<T>& job) {
  const int64_t half = job.half, rest = job.head_dim - 2 * half;
  const FloatVector direction = hn::Set(kFloat, job.direction);
  for (int64_t row = 0; row < job.rows; ++row) {
    const float *cos = job.cos + row * half, *sin = job.sin + row * half;
    for (int64_t head = 0; head < job.heads; ++head) {
      const T* x = job.x + row * job.row_stride + head * job.head_stride;
      T* y = job.y + (row * job.heads + head) * job.head_dim;
      each_vector(half, [&](size_t i, auto span) HWY_ATTR {
        const FloatVector c = load(cos + i, span), s = hn::Mul(load(sin + i, span), direction);
        const FloatVector low = load(x + i, span), high = load(x + half + i, span);
        store(hn::NegMulAdd(high, s, hn::Mul(low, c)), y + i, span);
        store(hn::MulAdd(low, s, hn::Mul(high, c)), y + half + i, span);
      });
      if (rest > 0) std::memcpy(y + 2 * half, x + 2 * half, rest * sizeof(T));
    }
  }
}

void rope_float(const Rope<float>& job) { rope(job); }
void rope_bfloat16(const Rope<BFloat16>& job) { rope(job); }

}  // namespace HWY_NAMESPACE
}  // namespace keyseat::nn::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat::nn::kernels {

HWY_EXPORT(rope_float);
HWY_EXPORT(rope_bfloat16);

void run(const Rope<float>& job) { HWY_DYNAMIC_DISPATCH(rope_float)(job); }
void run(const Rope<BFloat16>& job) { HWY_DYNAMIC_DISPATCH(rope_bfloat16)(job); }

}  // namespace keyseat::nn::kernels
#endif  // HWY_ONCE
