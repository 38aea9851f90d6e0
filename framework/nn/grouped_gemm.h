// The three products of a grouped linear layer, without autograd. Legend: M rows sorted by group,
// E groups, I in features, O out features. counts: rows of each group, on the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace keyseat::nn {

// y[r] = rows[r] W[group of r]^T. Rows past the sum of counts become zero.
void grouped_forward(const at::Tensor& rows_MI, const at::Tensor& weight_EOI,
                     const std::vector<int64_t>& counts, const at::Tensor& y_MO);

// gradient of rows: g[r] W[group of r]. Rows past the sum become zero.
void grouped_input_gradient(const at::Tensor& gradient_MO, const at::Tensor& weight_EOI,
                            const std::vector<int64_t>& counts, const at::Tensor& output_MI);

// accumulator[e] += g_e^T rows_e; experts without rows are not touched. The accumulator may have
// more precision than the rows (fp32 sink of bf16 rows).
void grouped_weight_gradient(const at::Tensor& gradient_MO, const at::Tensor& rows_MI,
                             const std::vector<int64_t>& counts, const at::Tensor& accumulator_EOI);

}  // namespace keyseat::nn
