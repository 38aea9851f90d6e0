// The mixture-of-experts layer: router, dispatcher, experts as grouped GEMMs over expert-sorted
// rows, combine. Legend: T rows, H hidden, E experts, e local experts, I expert width, M dispatched
// rows.
#pragma once

#include "keyseat/context.h"
#include "keyseat/nn/router.h"
#include "keyseat/params.h"

namespace keyseat::nn {

struct MoeOutput {
  at::Tensor y_TH;
  Routing routing;
};

// gate_up_e2IH: [local experts, 2I, H], gate rows first; down_eHI: [local experts, H, I].
KEYSEAT_API MoeOutput moe_layer(const at::Tensor& x_TH, const ParamHandle& router_EH,
                                const ParamHandle& gate_up_e2IH, const ParamHandle& down_eHI,
                                const RouterOptions& options, StepContext& context);

// rows_MI sorted by group; y_MO[r] = rows_MI[r] W[group of r]^T. counts_E: i64 [E] rows per group
// on the CPU (host_counts empty) or given on the host. Rows past the sum are not read; their result
// is zero. Weight gradients go into the sink.
KEYSEAT_API at::Tensor grouped_linear(const at::Tensor& rows_MI, const ParamHandle& weight_EOI,
                                      const at::Tensor& counts_E,
                                      const std::vector<int64_t>& host_counts, Kernels kernels);

// Row moves of a dispatcher, as autograd functions. source_M: i64 token of every expert-sorted row;
// slot_TK: i64 row of every (token, choice), -1 where not routed. permute: x_TH -> [M, H].
// unpermute: unweighted sum of the rows of each token, fp32 accumulation in order of k -> [T, H].
KEYSEAT_API at::Tensor permute_rows(const at::Tensor& x_TH, const at::Tensor& source_M,
                                    const at::Tensor& slot_TK);
KEYSEAT_API at::Tensor unpermute_rows(const at::Tensor& rows_MH, const at::Tensor& source_M,
                                      const at::Tensor& slot_TK);
// The routing weight of every expert-sorted row: weight_TK -> [rows], zero in rows without a choice.
KEYSEAT_API at::Tensor permute_weights(const at::Tensor& weight_TK, const at::Tensor& slot_TK,
                                       int64_t rows);

}  // namespace keyseat::nn
