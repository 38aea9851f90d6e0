// Linear layers and embeddings over ParamHandles: weight gradients go straight into the sink where
// there is one. Legend: T rows, I in features, O out features, V vocabulary, H hidden, R rows to
// replace.
#pragma once

#include "keyseat/context.h"
#include "keyseat/params.h"

namespace keyseat::nn {

// y_TO = x_TI W_OI^T + b_O. Any number of leading dims in x; zero rows are legal. `bias` may be
// undefined.
KEYSEAT_API at::Tensor linear(const at::Tensor& x_TI, const ParamHandle& weight_OI,
                              const ParamHandle& bias_O = {});

// table_VH[ids_T]; ids out of range are R4 on the CPU.
KEYSEAT_API at::Tensor embedding(const at::Tensor& ids_T, const ParamHandle& table_VH);

// A copy of x_TH with rows `index_R` replaced by (replace_rows) or increased by (add_rows)
// source_RH. index_R: i64, distinct.
KEYSEAT_API at::Tensor replace_rows(const at::Tensor& x_TH, const at::Tensor& index_R,
                                    const at::Tensor& source_RH);
KEYSEAT_API at::Tensor add_rows(const at::Tensor& x_TH, const at::Tensor& index_R,
                                const at::Tensor& source_RH);

}  // namespace keyseat::nn
