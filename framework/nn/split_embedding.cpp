// Embedding whose table is cut over tensor ranks by its vocabulary.
// Legend: C rows of the context rank, T own rows, V vocabulary, H hidden.
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/linear.h"
#include "keyseat/nn/row_moves.h"
#include "keyseat/nn/tensor_parallel.h"
#include "nn/embedding_rows.h"
#include "nn/parameter_gradient.h"
#include "nn/vocabulary_piece.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SplitEmbeddingFunction : torch::autograd::Function<SplitEmbeddingFunction> {
  // row_C: of the own table, -1 for ids of other ranks.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& row_C,
                            const at::Tensor& table, const ParamHandle& handle) {
    context->save_for_backward({table.requires_grad() ? row_C : at::Tensor()});
    context->saved_data["table"] = handle.capsule();
    return gather_rows(table, row_C);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (!context->needs_input_grad(1)) return {{}, {}, {}};
    const ParamHandle table = ParamHandle::from_capsule(context->saved_data["table"]);
    const at::Tensor row_C = context->get_saved_variables()[0];
    const GradientBuffer buffer(table);
    if (buffer.tensor().size(0) > 0) {
      // Rows of other ranks add zeros: to count those that are here the host would have to wait
      // for a device.
      add_into_rows(buffer.tensor(), row_C.clamp_min(0),
                    gradients[0].masked_fill(row_C.lt(0).unsqueeze(1), 0));
    }
    return {{}, buffer.hand_over(), {}};
  }
};

}  // namespace

at::Tensor split_embedding(const at::Tensor& ids_C, const ParamHandle& table_VH, int64_t vocabulary,
                           StepContext& context) {
  const RankGroupPointer group = group_over(context, {Axis::kTensor});
  if (group->size() == 1) return embedding(ids_C, table_VH);
  const VocabularyPiece piece = own_vocabulary(table_VH.value(), vocabulary, *group);
  check_ids(ids_C, vocabulary);
  const at::Tensor part_CH =
      SplitEmbeddingFunction::apply(rows_in_piece(ids_C, piece), table_VH.value(), table_VH);
  return leave_split(part_CH, Layout::kRows, context);
}

}  // namespace keyseat::nn
