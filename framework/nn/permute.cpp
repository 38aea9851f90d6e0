// Row moves of a dispatcher. Legend: T tokens, K choices, M expert-sorted rows, H hidden.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/moe.h"
#include "nn/contract.h"
#include "keyseat/nn/row_moves.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class PermuteRows : public torch::autograd::Function<PermuteRows> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TH,
                            const at::Tensor& source_M, const at::Tensor& slot_TK) {
    context->save_for_backward({slot_TK});
    return gather_rows(x_TH, source_M);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {sum_rows(gradients[0], context->get_saved_variables()[0]), at::Tensor(), at::Tensor()};
  }
};

class UnpermuteRows : public torch::autograd::Function<UnpermuteRows> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows_MH,
                            const at::Tensor& source_M, const at::Tensor& slot_TK) {
    context->save_for_backward({source_M});
    return sum_rows(rows_MH, slot_TK);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {gather_rows(gradients[0], context->get_saved_variables()[0]), at::Tensor(),
            at::Tensor()};
  }
};

class PermuteWeights : public torch::autograd::Function<PermuteWeights> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight_TK,
                            const at::Tensor& slot_TK, int64_t rows) {
    context->save_for_backward({slot_TK});
    return scatter_weights(weight_TK, slot_TK, rows);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {collect_weights(gradients[0], context->get_saved_variables()[0]), at::Tensor(),
            at::Tensor()};
  }
};

void check(bool fits, const char* op, const at::Tensor& moved, const at::Tensor& index) {
  if (fits && index.scalar_type() == at::kLong) return;
  contract_error(fmt::format("{} got a tensor {} and an index {} of type {}", op,
                             fmt::join(moved.sizes(), "x"), fmt::join(index.sizes(), "x"),
                             at::toString(index.scalar_type())),
                 "tokens are [T, H] or [T, K], rows [M, H], source i64 [M], slot i64 [T, K]",
                 "check the dispatcher's plan");
}

}  // namespace

at::Tensor permute_rows(const at::Tensor& x_TH, const at::Tensor& source_M,
                        const at::Tensor& slot_TK) {
  check(x_TH.dim() == 2 && slot_TK.dim() == 2 && slot_TK.size(0) == x_TH.size(0), "permute_rows",
        x_TH, slot_TK);
  check(source_M.dim() == 1, "permute_rows", x_TH, source_M);
  return PermuteRows::apply(x_TH, source_M, slot_TK);
}

at::Tensor unpermute_rows(const at::Tensor& rows_MH, const at::Tensor& source_M,
                          const at::Tensor& slot_TK) {
  check(rows_MH.dim() == 2 && source_M.dim() == 1 && source_M.size(0) == rows_MH.size(0),
        "unpermute_rows", rows_MH, source_M);
  check(slot_TK.dim() == 2, "unpermute_rows", rows_MH, slot_TK);
  return UnpermuteRows::apply(rows_MH, source_M, slot_TK);
}

at::Tensor permute_weights(const at::Tensor& weight_TK, const at::Tensor& slot_TK, int64_t rows) {
  check(weight_TK.sizes() == slot_TK.sizes(), "permute_weights", weight_TK, slot_TK);
  return PermuteWeights::apply(weight_TK, slot_TK, rows);
}

}  // namespace keyseat::nn
