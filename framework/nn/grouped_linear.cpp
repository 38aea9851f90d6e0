// Grouped GEMM over expert-sorted rows. Legend: M rows, E groups (local experts), I in features,
// O out features.
//
// Each group's product is written straight into its slice of the result, and its weight gradient
// straight into the sink: there are no temporaries and no copies of rows.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/moe.h"
#include "nn/contract.h"
#include "nn/grouped_gemm.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class GroupedLinear : public torch::autograd::Function<GroupedLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows_MI,
                            const at::Tensor& weight_EOI, const ParamHandle& handle,
                            const std::vector<int64_t>& counts) {
    // A frozen weight needs no rows kept.
    context->save_for_backward({weight_EOI.requires_grad() ? rows_MI : at::Tensor()});
    context->saved_data["weight"] = handle.capsule();
    context->saved_data["counts"] = counts;
    at::Tensor y_MO = at::empty({rows_MI.size(0), weight_EOI.size(1)}, rows_MI.options());
    grouped_forward(rows_MI, weight_EOI, counts, y_MO);
    return y_MO;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor gradient_MO = gradients[0].contiguous();
    const at::Tensor rows_MI = context->get_saved_variables()[0];
    const ParamHandle weight_EOI = ParamHandle::from_capsule(context->saved_data["weight"]);
    const std::vector<int64_t> counts = context->saved_data["counts"].toIntVector();
    at::Tensor rows_gradient_MI, weight_gradient_EOI;
    if (context->needs_input_grad(0)) {
      rows_gradient_MI =
          at::empty({gradient_MO.size(0), weight_EOI.value().size(2)}, gradient_MO.options());
      grouped_input_gradient(gradient_MO, weight_EOI.value(), counts, rows_gradient_MI);
    }
    if (context->needs_input_grad(1)) {
      if (weight_EOI.sink().defined()) {
        grouped_weight_gradient(gradient_MO, rows_MI, counts, weight_EOI.sink());
      } else {
        weight_gradient_EOI = at::zeros(weight_EOI.value().sizes(), weight_EOI.value().options());
        grouped_weight_gradient(gradient_MO, rows_MI, counts, weight_gradient_EOI);
      }
    }
    return {rows_gradient_MI, weight_gradient_EOI, at::Tensor(), at::Tensor()};
  }
};

// The oracle: one LibTorch linear per group, gradients by autograd.
at::Tensor grouped_linear_naive(const at::Tensor& rows_MI, const at::Tensor& weight_EOI,
                                const std::vector<int64_t>& counts) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (size_t e = 0; e < counts.size(); ++e) {
    parts.push_back(at::linear(rows_MI.narrow(0, begin, counts[e]),
                               weight_EOI.select(0, static_cast<int64_t>(e))));
    begin += counts[e];
  }
  parts.push_back(at::zeros({rows_MI.size(0) - begin, weight_EOI.size(1)}, rows_MI.options()));
  return at::cat(parts);
}

std::vector<int64_t> counts_on_host(const at::Tensor& counts_E,
                                    const std::vector<int64_t>& host_counts) {
  if (!host_counts.empty()) return host_counts;
  const at::Tensor counts = counts_E.to(at::kCPU, at::kLong).contiguous();
  const int64_t* data = counts.const_data_ptr<int64_t>();
  return {data, data + counts.numel()};
}

void check(const at::Tensor& rows_MI, const at::Tensor& weight_EOI,
           const std::vector<int64_t>& counts) {
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const bool negative = std::any_of(counts.begin(), counts.end(), [](int64_t n) { return n < 0; });
  if (rows_MI.dim() == 2 && weight_EOI.dim() == 3 && rows_MI.size(1) == weight_EOI.size(2) &&
      static_cast<int64_t>(counts.size()) == weight_EOI.size(0) && !negative &&
      sum <= rows_MI.size(0)) {
    return;
  }
  contract_error(
      fmt::format("grouped_linear got rows {}, weights {} and counts of {} groups with sum {}",
                  fmt::join(rows_MI.sizes(), "x"), fmt::join(weight_EOI.sizes(), "x"),
                  counts.size(), sum),
      "rows are [M, I], weights [E, O, I], and E counts >= 0 add up to at most M",
      "check the dispatcher's tokens per expert");
}

}  // namespace

at::Tensor grouped_linear(const at::Tensor& rows_MI, const ParamHandle& weight_EOI,
                          const at::Tensor& counts_E, const std::vector<int64_t>& host_counts,
                          Kernels kernels) {
  const at::Tensor& weight = weight_EOI.value();
  if (rows_MI.is_meta()) {
    // Counts are data: on meta tensors all rows count as rows of the first group.
    std::vector<int64_t> counts(static_cast<size_t>(weight.size(0)), 0);
    counts.front() = rows_MI.size(0);
    check(rows_MI, weight, counts);
    return GroupedLinear::apply(rows_MI, weight, weight_EOI, counts);
  }
  const std::vector<int64_t> counts = counts_on_host(counts_E, host_counts);
  check(rows_MI, weight, counts);
  if (kernels == Kernels::kNaive) return grouped_linear_naive(rows_MI, weight, counts);
  return GroupedLinear::apply(rows_MI.contiguous(), weight, weight_EOI, counts);
}

}  // namespace keyseat::nn
