// Cross-entropy of a head whose vocabulary is cut over tensor ranks.
// Legend: T own rows, C rows of the context rank, S supervised ones of them, H hidden, V
// vocabulary; of a weight and its logits V is this rank's piece.
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/mutation.h"
#include "keyseat/nn/cross_entropy.h"
#include "keyseat/nn/moe.h"
#include "keyseat/nn/tensor_parallel.h"
#include "nn/cross_entropy_chunks.h"
#include "nn/logsumexp.h"
#include "nn/naive.h"
#include "nn/parameter_gradient.h"
#include "nn/supervised_rows.h"
#include "nn/vocabulary_piece.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The slice of the context rank's rows whose losses this tensor rank adds up: with or without
// sequence parallel, so that the shares of all ranks are the sum.
at::Tensor own_slice(const at::Tensor& loss_C, const RankGroup& group) {
  if (KEYSEAT_MUTATED("loss_of_all_rows")) return loss_C;
  const int64_t rows = loss_C.size(0) / group.size();
  return loss_C.narrow(0, group.rank() * rows, rows);
}

// log of the sum of exponentials over the whole vocabulary, and the loss, of every row.
struct WholeLoss {
  at::Tensor log_sum_S, loss_S;
};

// One collective: what the ranks know of every row. Combined in fp64, equally on all of them.
WholeLoss combine_log_sums(const at::Tensor& own_2S, const RankGroup& group) {
  const at::Tensor all_R2S = group.all_gather(own_2S).unflatten(0, {group.size(), 2});
  const at::Tensor log_sum_SR = all_R2S.select(1, 0).to(at::kDouble).t();
  const at::Tensor log_sum_S = logsumexp_rows(log_sum_SR).squeeze(1);
  const at::Tensor target_S = all_R2S.select(1, 1).sum(0, /*keepdim=*/false, at::kDouble);
  return {log_sum_S.to(own_2S.scalar_type()), log_sum_S.sub(target_S).to(own_2S.scalar_type())};
}

// Forward finds the log-sums; backward computes the logits again, chunk by chunk, and both
// gradients from them.
class SplitCrossEntropy : public torch::autograd::Function<SplitCrossEntropy> {
 public:
  // labels_S: rows of the own piece, -1 for labels of other ranks.
  static variable_list forward(AutogradContext* context, const at::Tensor& x_SH,
                               const at::Tensor& weight_VH, const ParamHandle& handle,
                               const at::Tensor& labels_S, const at::Tensor& row_S, int64_t rows,
                               const RankGroupPointer& group) {
    const auto options = x_SH.options().dtype(naive::wide_type(x_SH));
    const at::Tensor own_2S = at::empty({2, x_SH.size(0)}, options);
    chunked_log_sums(x_SH, weight_VH, labels_S, {own_2S.select(0, 0), own_2S.select(0, 1)});
    const WholeLoss whole = combine_log_sums(own_2S, *group);
    const at::Tensor loss_C = at::zeros({rows}, options).scatter_(0, row_S, whole.loss_S);
    context->save_for_backward({x_SH, labels_S, whole.log_sum_S});
    context->saved_data["weight"] = handle.capsule();
    context->mark_non_differentiable({loss_C});
    // The sum over rows in fp64: their order does not show in fp32.
    return {own_slice(loss_C, *group).sum(at::kDouble).to(options.dtype()).reshape({1}), loss_C};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x_SH = saved[0], &labels_S = saved[1], &log_sum_S = saved[2];
    const ParamHandle weight = ParamHandle::from_capsule(context->saved_data["weight"]);
    const at::TensorOptions options = log_sum_S.options();
    SplitGradients result;
    if (context->needs_input_grad(0)) result.x_gradient_SH = at::empty(x_SH.sizes(), options);
    const bool into_sink = weight.sink().defined() && weight.sink().dtype() == options.dtype();
    if (context->needs_input_grad(1)) {
      result.weight_gradient_VH =
          into_sink ? weight.sink() : at::zeros(weight.value().sizes(), options);
    }
    chunked_gradients(x_SH, weight.value(), labels_S, log_sum_S, gradients[0], result);
    at::Tensor x_gradient_SH, weight_gradient_VH;
    if (result.x_gradient_SH.defined()) x_gradient_SH = result.x_gradient_SH.to(x_SH.scalar_type());
    if (result.weight_gradient_VH.defined() && !into_sink)
      weight_gradient_VH = hand_over(weight, result.weight_gradient_VH);
    return {x_gradient_SH, weight_gradient_VH, {}, {}, {}, {}, {}};
  }
};

// The logits of all ranks, one beside the other. Every rank computes the same with the
// whole, so each keeps the gradient of its own piece.
struct GatherVocabulary : torch::autograd::Function<GatherVocabulary> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits_CV,
                            const RankGroupPointer& group, int64_t vocabulary) {
    const VocabularyPiece piece = vocabulary_piece(vocabulary, *group, group->rank());
    context->saved_data["begin"] = piece.begin;
    context->saved_data["rows"] = piece.rows;
    return group->all_gather(logits_CV.t().contiguous(), vocabulary_counts(vocabulary, *group)).t();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {gradients[0].narrow(1, context->saved_data["begin"].toInt(),
                                context->saved_data["rows"].toInt()),
            {},
            {}};
  }
};

// Value and losses of every row; the oracle has all logits at once, gradients by autograd.
variable_list split_cross_entropy_naive(const at::Tensor& x_CH, const at::Tensor& weight_VH,
                                        int64_t vocabulary, const at::Tensor& labels_C,
                                        const RankGroupPointer& group) {
  const at::ScalarType type = naive::wide_type(x_CH);
  const at::Tensor logits_CV =
      GatherVocabulary::apply(at::linear(x_CH.to(type), weight_VH.to(type)), group, vocabulary);
  const at::Tensor loss_C = naive_row_losses(logits_CV, labels_C), sum = loss_C.sum();
  // The value of the own slice, the gradient of all rows.
  const at::Tensor share = own_slice(loss_C.detach(), *group).sum();
  return {sum.sub(sum.detach()).add(share).reshape({1}), loss_C.detach()};
}

variable_list split_cross_entropy_fast(const at::Tensor& x_CH, const ParamHandle& weight_VH,
                                       const VocabularyPiece& piece, const at::Tensor& labels_C,
                                       const RankGroupPointer& group) {
  const SupervisedRows supervised = supervised_rows(labels_C);
  return SplitCrossEntropy::apply(
      permute_rows(x_CH, supervised.row_S, supervised.slot_T1), weight_VH.value(), weight_VH,
      rows_in_piece(supervised.label_S, piece), supervised.row_S, labels_C.size(0), group);
}

void check_split_loss(const at::Tensor& x_CH, const at::Tensor& weight_VH, int64_t vocabulary,
                      const at::Tensor& labels_C, const RankGroup& group) {
  const bool shapes_fit = x_CH.dim() == 2 && labels_C.dim() == 1 &&
                          x_CH.size(1) == weight_VH.size(1) && x_CH.size(0) == labels_C.size(0) &&
                          x_CH.size(0) % group.size() == 0 && labels_C.scalar_type() == at::kLong;
  const bool labels_fit = !shapes_fit || !labels_C.is_cpu() || labels_C.numel() == 0 ||
                          labels_C.max().item<int64_t>() < vocabulary;
  if (shapes_fit && labels_fit) return;
  contract_error(
      fmt::format("split_cross_entropy over {} tensor ranks got rows {} of the context rank, a "
                  "piece {} of a head of {} rows and labels {} of type {}{}",
                  group.size(), fmt::join(x_CH.sizes(), "x"), fmt::join(weight_VH.sizes(), "x"),
                  vocabulary, fmt::join(labels_C.sizes(), "x"),
                  at::toString(labels_C.scalar_type()),
                  labels_fit ? "" : fmt::format(" up to {}", labels_C.max().item<int64_t>())),
      "rows are [C, H], labels i64 [C] below the vocabulary (negative: ignored), and the tensor "
      "ranks divide C",
      "check that the tokenizer belongs to the model, and that labels are those of the context "
      "rank");
}

}  // namespace

at::Tensor split_cross_entropy(const at::Tensor& x_TH, const ParamHandle& weight_VH,
                               int64_t vocabulary, const at::Tensor& labels_C, StepContext& context,
                               at::Tensor* per_token_T) {
  const RankGroupPointer group = group_over(context, {Axis::kTensor});
  if (group->size() == 1)
    return linear_cross_entropy(x_TH, weight_VH, labels_C, context.kernels(), per_token_T);
  const at::Tensor& weight = weight_VH.value();
  const VocabularyPiece piece = own_vocabulary(weight, vocabulary, *group);
  const at::Tensor x_CH = enter_split(x_TH, Layout::kRows, context);
  check_split_loss(x_CH, weight, vocabulary, labels_C, *group);
  const variable_list outputs =
      context.kernels() == Kernels::kNaive
          ? split_cross_entropy_naive(x_CH, weight, vocabulary, labels_C, group)
          : split_cross_entropy_fast(x_CH, weight_VH, piece, labels_C, group);
  if (per_token_T != nullptr) {
    const bool slices = context.mesh().sequence_parallel();
    *per_token_T = slices ? own_slice(outputs[1], *group) : outputs[1];
  }
  return outputs[0];
}

}  // namespace keyseat::nn
