// Naive application of rotary embeddings.
#include <ATen/ops/cat.h>

#include "nn/naive.h"

namespace keyseat::nn::naive {

at::Tensor apply_rope(const at::Tensor& x_Tnd, const RopeTables& tables) {
  const int64_t half = tables.cos.size(-1), rotary = 2 * half, head = x_Tnd.size(-1);
  at::Tensor cos_T1D = at::cat({tables.cos, tables.cos}, -1).unsqueeze(1);
  at::Tensor sin_T1D = at::cat({tables.sin, tables.sin}, -1).unsqueeze(1);
  at::Tensor wide_TnD = x_Tnd.narrow(-1, 0, rotary).to(wide_type(x_Tnd));
  at::Tensor turned_TnD =
      at::cat({wide_TnD.narrow(-1, half, half).neg(), wide_TnD.narrow(-1, 0, half)}, -1);
  at::Tensor y_TnD = wide_TnD.mul(cos_T1D).add(turned_TnD.mul(sin_T1D)).to(x_Tnd.scalar_type());
  if (rotary == head) return y_TnD;
  return at::cat({y_TnD, x_Tnd.narrow(-1, rotary, head - rotary)}, -1);
}

}  // namespace keyseat::nn::naive
