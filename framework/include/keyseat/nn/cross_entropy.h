// Head and cross-entropy by chunks of rows: full logits are never kept.
// Legend: T rows, H hidden, V vocabulary.
#pragma once

#include "keyseat/context.h"
#include "keyseat/params.h"

namespace keyseat::nn {

// Sum over rows with label >= 0 of -log softmax(x W^T)[label], logits and softmax in fp32 -> [1]
// fp32. Other rows (label -100) cost nothing and get a zero gradient. With gradients enabled the
// gradient of the hidden rows and of the weight is computed chunk by chunk beside the loss, so no
// logits are computed twice. per_token_T, if given, receives the loss of every row (0 where
// ignored), fp32 [T].
KEYSEAT_API at::Tensor linear_cross_entropy(const at::Tensor& x_TH, const ParamHandle& weight_VH,
                                            const at::Tensor& labels_T, Kernels kernels,
                                            at::Tensor* per_token_T = nullptr);

}  // namespace keyseat::nn
