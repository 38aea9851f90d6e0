// Head and cross-entropy by chunks of rows, without autograd. Legend: S supervised rows, H hidden,
// V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

namespace keyseat::nn {

// Outputs, allocated by the caller in fp32 (fp64 for fp64 rows). An undefined gradient is not
// computed. Gradients are those of the sum of the losses.
struct ChunkedLoss {
  at::Tensor loss_S;
  at::Tensor x_gradient_SH;
  at::Tensor weight_gradient_VH;
};

void chunked_cross_entropy(const at::Tensor& x_SH, const at::Tensor& weight_VH,
                           const at::Tensor& labels_S, ChunkedLoss& result);

}  // namespace keyseat::nn
