// Legend: T rows, S supervised rows, V vocabulary.
#include "nn/supervised_rows.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>

namespace keyseat::nn {

SupervisedRows supervised_rows(const at::Tensor& labels_T) {
  const int64_t rows = labels_T.size(0);
  if (labels_T.is_meta()) {
    const at::Tensor row_T = at::arange(rows, labels_T.options());
    return {row_T, labels_T, row_T.unsqueeze(1)};
  }
  SupervisedRows result;
  result.row_S = labels_T.ge(0).nonzero().squeeze(1);
  result.label_S = labels_T.index_select(0, result.row_S);
  result.slot_T1 = at::full({rows, 1}, -1, labels_T.options());
  result.slot_T1.select(1, 0).scatter_(0, result.row_S,
                                       at::arange(result.row_S.size(0), labels_T.options()));
  return result;
}

at::Tensor naive_row_losses(const at::Tensor& logits_TV, const at::Tensor& labels_T) {
  return at::log_softmax(logits_TV, 1)
      .gather(1, labels_T.clamp_min(0).unsqueeze(1))
      .squeeze(1)
      .neg()
      .masked_fill(labels_T.lt(0), 0);
}

}  // namespace keyseat::nn
