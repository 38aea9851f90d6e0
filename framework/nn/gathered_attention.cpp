// Legend: C rows of this context rank, T rows of the packed row, n query heads, m key/value heads,
// d head dim.
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/mutation.h"
#include "nn/attention_flash.h"
#include "nn/attention_pieces.h"
#include "nn/row_attention.h"
#include "runtime/own_rows.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor gather_keys_values(const at::Tensor& k_Cmd, const at::Tensor& v_Cmd,
                              const RowAttentionPlan& plan) {
  return in_row_order(plan.group->all_gather(pack_keys_values(k_Cmd, v_Cmd)), plan.group->size());
}

std::vector<AttentionPiece> pieces_of_row(const RowAttentionPlan& plan) {
  return attention_pieces(plan.own_chunks(), {{0, plan.row_tokens}}, plan.cu_seqlens);
}

struct GatheredAttentionFunction : torch::autograd::Function<GatheredAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const RowAttentionPlanPointer& plan) {
    const at::Tensor kv_T2md = gather_keys_values(k, v, *plan);
    AttentionSums sums(q);
    for (const AttentionPiece& piece : pieces_of_row(*plan))
      attend(piece, q, keys_in(kv_T2md), values_in(kv_T2md), plan->scale, sums);
    const at::Tensor y = sums.y_Cnd.to(q.scalar_type());
    context->save_for_backward({q, k, v, y, sums.log_sum_nC});
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &y = saved[3];
    const auto plan = c10::static_intrusive_pointer_cast<RowAttentionPlan>(
        context->saved_data["plan"].toCapsule());
    const at::Tensor dy = last_dim_packed(gradients[0]);
    const at::Tensor kv_T2md = gather_keys_values(k, v, *plan);
    const AttentionRows rows{q, dy, saved[4], row_deltas(y, dy), plan->scale};
    const at::TensorOptions wide = rows.delta_nC.options();
    const at::Tensor dkv_T2md = at::zeros(kv_T2md.sizes(), wide);
    const AttentionGradients out{at::zeros(q.sizes(), wide), keys_in(dkv_T2md),
                                 values_in(dkv_T2md)};
    for (const AttentionPiece& piece : pieces_of_row(*plan))
      attend_backward(piece, rows, keys_in(kv_T2md), values_in(kv_T2md), out);
    const at::Tensor parts = plan->by_rank(dkv_T2md.to(k.scalar_type()));
    const at::Tensor dkv_C2md = KEYSEAT_MUTATED("own_keys_only")
                                    ? parts.chunk(plan->group->size())[plan->group->rank()]
                                    : plan->group->reduce_scatter(parts);
    return {out.dq_Cnd.to(q.scalar_type()), keys_in(dkv_C2md), values_in(dkv_C2md), {}};
  }
};

}  // namespace

at::Tensor gathered_attention(const at::Tensor& q_Cnd, const at::Tensor& k_Cmd,
                              const at::Tensor& v_Cmd, const RowAttentionPlanPointer& plan) {
  return GatheredAttentionFunction::apply(q_Cnd, k_Cmd, v_Cmd, plan);
}

}  // namespace keyseat::nn
