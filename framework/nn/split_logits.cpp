// Logits of chosen rows of the packed row, wherever the rows and the vocabulary lie.
// Legend: T own rows, R rows of which logits are wanted, H hidden, V vocabulary.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>

#include "keyseat/nn/row_moves.h"
#include "keyseat/nn/tensor_parallel.h"
#include "nn/vocabulary_piece.h"
#include "runtime/own_rows.h"

namespace keyseat::nn {
namespace {

// Zeros in rows that are not here.
at::Tensor own_rows_of(const at::Tensor& x_TH, const at::Tensor& rows_R,
                       const StepContext& context) {
  const int64_t row_tokens = context.row().share.row_tokens;
  at::Tensor place = at::full({row_tokens}, -1, rows_R.options());  // of rows of the packed row
  int64_t passed = 0;
  for (const RowRange& own : own_rows(row_tokens, Layout::kRows, context.mesh())) {
    const int64_t size = own.end - own.begin;
    place.narrow(0, own.begin, size).copy_(at::arange(passed, passed + size, rows_R.options()));
    passed += size;
  }
  return gather_rows(x_TH, place.index_select(0, rows_R));
}

}  // namespace

at::Tensor split_logits(const at::Tensor& x_TH, const ParamHandle& weight_VH, int64_t vocabulary,
                        const at::Tensor& rows_R, StepContext& context) {
  const at::NoGradGuard no_grad;
  const RankGroupPointer over_tensor = group_over(context, {Axis::kTensor});
  const at::Tensor& weight = weight_VH.value();
  if (over_tensor->size() > 1) own_vocabulary(weight, vocabulary, *over_tensor);
  if (rows_R.is_meta())
    return at::empty({rows_R.size(0), vocabulary}, x_TH.options().dtype(at::kFloat));
  std::vector<Axis> axes;
  if (context.state().mesh != nullptr) axes = context.mesh().split_axes(Layout::kRows);
  const at::Tensor x_RH =
      axes.empty() ? x_TH.index_select(0, rows_R)
                   : group_over(context, axes)->all_reduce(own_rows_of(x_TH, rows_R, context));
  const at::Tensor logits_RV = at::linear(x_RH, weight).to(at::kFloat);
  if (over_tensor->size() == 1) return logits_RV;
  return over_tensor
      ->all_gather(logits_RV.t().contiguous(), vocabulary_counts(vocabulary, *over_tensor))
      .t()
      .contiguous();
}

}  // namespace keyseat::nn
