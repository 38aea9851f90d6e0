// Legend: T rows, S supervised rows, C rows of a chunk, H hidden, V vocabulary, B rows of a weight
// block.
#include "keyseat/nn/cross_entropy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/moe.h"
#include "nn/contract.h"
#include "nn/cross_entropy_chunks.h"
#include "nn/naive.h"
#include "nn/supervised_rows.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Both gradients are computed beside the loss, for a loss gradient of one: the softmax is at hand
// then, and logits are never computed twice. Backward scales them by the gradient that came.
class LinearCrossEntropy : public torch::autograd::Function<LinearCrossEntropy> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x_SH,
                               const at::Tensor& weight_VH, const ParamHandle& handle,
                               const at::Tensor& labels_S, bool x_gradient, bool weight_gradient) {
    const auto options = x_SH.options().dtype(naive::wide_type(x_SH));
    ChunkedLoss result;
    result.loss_S = at::empty({x_SH.size(0)}, options);
    if (x_gradient) result.x_gradient_SH = at::empty(x_SH.sizes(), options);
    if (weight_gradient) result.weight_gradient_VH = at::empty(weight_VH.sizes(), options);
    chunked_cross_entropy(x_SH, weight_VH, labels_S, result);
    context->save_for_backward({result.x_gradient_SH, result.weight_gradient_VH});
    context->saved_data["weight"] = handle.capsule();
    context->saved_data["x_type"] = x_SH.scalar_type();
    context->mark_non_differentiable({result.loss_S});
    // The sum over rows in fp64: their order does not show in fp32.
    const at::Tensor loss_1 = result.loss_S.sum(at::kDouble).to(options.dtype()).reshape({1});
    return {loss_1, result.loss_S};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor& loss_gradient_1 = gradients[0];
    const variable_list saved = context->get_saved_variables();
    const ParamHandle weight_VH = ParamHandle::from_capsule(context->saved_data["weight"]);
    const at::ScalarType x_type = context->saved_data["x_type"].toScalarType();
    at::Tensor x_gradient_SH, weight_gradient_VH;
    if (saved[0].defined()) x_gradient_SH = saved[0].mul(loss_gradient_1).to(x_type);
    if (saved[1].defined() && context->needs_input_grad(1)) {
      if (!weight_VH.sink().defined()) {
        weight_gradient_VH = saved[1].mul(loss_gradient_1).to(weight_VH.value().scalar_type());
      } else if (saved[1].is_cpu()) {
        weight_VH.sink().add_(saved[1], loss_gradient_1.item());
      } else {
        weight_VH.sink().addcmul_(saved[1], loss_gradient_1);  // no host sync on a device
      }
    }
    return {x_gradient_SH, weight_gradient_VH, at::Tensor(),
            at::Tensor(),  at::Tensor(),       at::Tensor()};
  }
};

void check(const at::Tensor& x_TH, const at::Tensor& weight_VH, const at::Tensor& labels_T) {
  const bool shapes_fit = x_TH.dim() == 2 && weight_VH.dim() == 2 && labels_T.dim() == 1 &&
                          x_TH.size(1) == weight_VH.size(1) && x_TH.size(0) == labels_T.size(0) &&
                          labels_T.scalar_type() == at::kLong;
  const bool labels_fit = !shapes_fit || !labels_T.is_cpu() || labels_T.numel() == 0 ||
                          labels_T.max().item<int64_t>() < weight_VH.size(0);
  if (shapes_fit && labels_fit) return;
  contract_error(
      fmt::format("linear_cross_entropy got rows {}, a head {} and labels {} of type {}{}",
                  fmt::join(x_TH.sizes(), "x"), fmt::join(weight_VH.sizes(), "x"),
                  fmt::join(labels_T.sizes(), "x"), at::toString(labels_T.scalar_type()),
                  labels_fit ? "" : fmt::format(" up to {}", labels_T.max().item<int64_t>())),
      "rows are [T, H], the head [V, H], labels i64 [T] below V (negative: ignored)",
      "check that the tokenizer belongs to the model");
}

// The oracle: all logits at once, gradients by autograd.
at::Tensor linear_cross_entropy_naive(const at::Tensor& x_TH, const at::Tensor& weight_VH,
                                      const at::Tensor& labels_T, at::Tensor* per_token_T) {
  const at::ScalarType type = naive::wide_type(x_TH);
  const at::Tensor logits_TV = at::linear(x_TH.to(type), weight_VH.to(type));
  const at::Tensor loss_T = naive_row_losses(logits_TV, labels_T);
  if (per_token_T != nullptr) *per_token_T = loss_T.detach();
  return loss_T.sum().reshape({1});
}

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x_TH, const ParamHandle& weight_VH,
                                const at::Tensor& labels_T, Kernels kernels,
                                at::Tensor* per_token_T) {
  const at::Tensor& weight = weight_VH.value();
  check(x_TH, weight, labels_T);
  if (kernels == Kernels::kNaive) {
    return linear_cross_entropy_naive(x_TH, weight, labels_T, per_token_T);
  }
  const SupervisedRows supervised = supervised_rows(labels_T);
  const bool record = at::GradMode::is_enabled();
  const variable_list outputs = LinearCrossEntropy::apply(
      permute_rows(x_TH, supervised.row_S, supervised.slot_T1), weight, weight_VH,
      supervised.label_S, record && x_TH.requires_grad(), record && weight_VH.trainable());
  if (per_token_T != nullptr) {
    *per_token_T =
        at::zeros(labels_T.sizes(), outputs[1].options()).scatter_(0, supervised.row_S, outputs[1]);
  }
  return outputs[0];
}

}  // namespace keyseat::nn
