// Row moves without autograd: the two directions of permute and unpermute, and the same for one
// weight per row. Legend: T tokens, K choices, M rows, H hidden. Index -1 stands for "nowhere".
#pragma once

#include <ATen/core/Tensor.h>

#include "keyseat/export.h"

namespace keyseat::nn {

// output[m] = x[source[m]]; zero where source is -1.
KEYSEAT_API at::Tensor gather_rows(const at::Tensor& x_TH, const at::Tensor& source_M);

// output[t] = sum over k, in this order and in fp32, of rows[slot[t, k]]; in the rows' type.
KEYSEAT_API at::Tensor sum_rows(const at::Tensor& rows_MH, const at::Tensor& slot_TK);

// output[slot[t, k]] = weight[t, k]; zero in rows without a choice.
KEYSEAT_API at::Tensor scatter_weights(const at::Tensor& weight_TK, const at::Tensor& slot_TK,
                                       int64_t rows);

// output[t, k] = weight[slot[t, k]]; zero where slot is -1.
KEYSEAT_API at::Tensor collect_weights(const at::Tensor& weight_M, const at::Tensor& slot_TK);

}  // namespace keyseat::nn
