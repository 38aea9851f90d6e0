// Application of rotary position embeddings.
#include "keyseat/nn/rope.h"
#include "nn/naive.h"

namespace keyseat::nn {

at::Tensor apply_rope(const at::Tensor& x_Tnd, const RopeTables& tables, Kernels kernels) {
  const RopeTables here{tables.cos.to(x_Tnd.device()), tables.sin.to(x_Tnd.device())};
  (void)kernels;
  return naive::apply_rope(x_Tnd, here);
}

}  // namespace keyseat::nn
