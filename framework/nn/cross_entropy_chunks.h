// Head and cross-entropy by chunks of rows, without autograd. Legend: S supervised rows, H hidden,
// V vocabulary, of this rank where it is cut over tensor; C rows of a chunk.
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

// What a rank knows of the loss: of its part of the logits of every row the log of the sum of
// exponentials, and the logit of the label, or 0 where `labels_S` says -1 (another rank has it).
// Outputs as above.
struct LogSums {
  at::Tensor log_sum_S, target_S;
};
void chunked_log_sums(const at::Tensor& x_SH, const at::Tensor& weight_VH,
                      const at::Tensor& labels_S, const LogSums& result);

// Gradients of scale_1 times the sum of the losses, from the log-sums over the whole vocabulary:
// x_gradient_SH is written, weight_gradient_VH added to. An undefined one is not computed.
struct SplitGradients {
  at::Tensor x_gradient_SH, weight_gradient_VH;
};
void chunked_gradients(const at::Tensor& x_SH, const at::Tensor& weight_VH,
                       const at::Tensor& labels_S, const at::Tensor& log_sum_S,
                       const at::Tensor& scale_1, const SplitGradients& result);

}  // namespace keyseat::nn
