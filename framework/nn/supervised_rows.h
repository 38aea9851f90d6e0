// The rows of which a loss is wanted. Legend: T rows, S supervised rows.
#pragma once

#include <ATen/core/Tensor.h>

namespace keyseat::nn {

struct SupervisedRows {
  at::Tensor row_S, label_S;
  at::Tensor slot_T1;  // where each row went, -1 for rows that are ignored
};

// Labels below 0 are ignored. On meta tensors, where their number is unknown: all rows.
SupervisedRows supervised_rows(const at::Tensor& labels_T);

// -log softmax(logits)[label] of every row, 0 where the label is ignored; by plain differentiable
// LibTorch operations.
at::Tensor naive_row_losses(const at::Tensor& logits_TV, const at::Tensor& labels_T);

}  // namespace keyseat::nn
