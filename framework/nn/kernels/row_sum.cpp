// Kernels of the sum of a token's rows.
#include "nn/kernels/row_sum.h"

#include "nn/kernels/dispatch.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/kernels/row_sum.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h includes this file once per target.
#include "nn/kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keyseat::nn::kernels {
namespace HWY_NAMESPACE {

// The choices are the inner loop, so every element is written once and bf16 is rounded once; the k
// input rows are read side by side, which the prefetchers of current CPUs follow.
template <typename T>
void row_sum(const RowSum<T>& job) {
  for (int64_t token = 0; token < job.tokens; ++token) {
    const int64_t* slot = job.slot + token * job.choices;
    T* y = job.y + token * job.width;
    each_vector(job.width, [&](size_t i, auto span) HWY_ATTR {
      FloatVector sum = hn::Zero(kFloat);
      for (int64_t k = 0; k < job.choices; ++k) {
        if (slot[k] >= 0) sum = hn::Add(sum, load(job.rows + slot[k] * job.width + i, span));
      }
      store(sum, y + i, span);
    });
  }
}

void row_sum_float(const RowSum<float>& job) { row_sum(job); }
void row_sum_bfloat16(const RowSum<BFloat16>& job) { row_sum(job); }

}  // namespace HWY_NAMESPACE
}  // namespace keyseat::nn::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keyseat::nn::kernels {

HWY_EXPORT(row_sum_float);
HWY_EXPORT(row_sum_bfloat16);

void run(const RowSum<float>& job) { HWY_DYNAMIC_DISPATCH(row_sum_float)(job); }
void run(const RowSum<BFloat16>& job) { HWY_DYNAMIC_DISPATCH(row_sum_bfloat16)(job); }

}  // namespace keyseat::nn::kernels
#endif  // HWY_ONCE
