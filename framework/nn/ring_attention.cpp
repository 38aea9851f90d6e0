// Legend: C rows of a context rank, n query heads, m key/value heads, d head dim.
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/mutation.h"
#include "keyseat/nn/exchange.h"
#include "nn/attention_flash.h"
#include "nn/attention_pieces.h"
#include "nn/row_attention.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The tensor goes to the next rank, and that of the rank before comes here. One call for both: as
// two they would wait for each other all round the ring where a device runs them one by one.
Exchange pass_on(const RankGroup& group, const at::Tensor& sent) {
  const int64_t ranks = group.size(), next = (group.rank() + 1) % ranks,
                before = (group.rank() + ranks - 1) % ranks;
  std::vector<int64_t> to(static_cast<size_t>(ranks), 0), from = to;
  to[static_cast<size_t>(next)] = from[static_cast<size_t>(before)] = sent.size(0);
  return begin_all_to_all(group.comm(), sent, from, to);
}

// The pieces of own queries and the keys that are here at this step: those of the rank `step`
// places before this one.
std::vector<AttentionPiece> pieces_of_step(const RowAttentionPlan& plan, int64_t step) {
  const int64_t ranks = plan.group->size();
  const int64_t owner = (plan.group->rank() + ranks - step) % ranks;
  return attention_pieces(plan.own_chunks(), plan.chunks[static_cast<size_t>(owner)],
                          plan.cu_seqlens);
}

struct RingAttentionFunction : torch::autograd::Function<RingAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const RowAttentionPlanPointer& plan) {
    const int64_t ranks = plan->group->size();
    AttentionSums sums(q);
    at::Tensor kv_C2md = pack_keys_values(k, v);
    for (int64_t step = 0; step < ranks; ++step) {
      const bool passes = step + 1 < ranks;
      Exchange pass = passes ? pass_on(*plan->group, kv_C2md) : Exchange();
      for (const AttentionPiece& piece : pieces_of_step(*plan, step))
        attend(piece, q, keys_in(kv_C2md), values_in(kv_C2md), plan->scale, sums);
      if (passes) kv_C2md = pass.wait();
    }
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
    const int64_t ranks = plan->group->size();
    const at::Tensor dy = last_dim_packed(gradients[0]);
    const AttentionRows rows{q, dy, saved[4], row_deltas(y, dy), plan->scale};
    const at::TensorOptions wide = rows.delta_nC.options();
    const at::Tensor dq = at::zeros(q.sizes(), wide);
    at::Tensor kv_C2md = pack_keys_values(k, v);
    // Sums travel in the wide type: rounded on every rank they would drift.
    at::Tensor dkv_C2md = at::zeros(kv_C2md.sizes(), wide);
    Exchange sums_pass;  // one step behind: this rank has to add to them first
    for (int64_t step = 0; step < ranks; ++step) {
      const bool passes = step + 1 < ranks;
      Exchange pass = passes ? pass_on(*plan->group, kv_C2md) : Exchange();
      if (step > 0) dkv_C2md = sums_pass.wait();
      const AttentionGradients out{dq, keys_in(dkv_C2md), values_in(dkv_C2md)};
      for (const AttentionPiece& piece : pieces_of_step(*plan, step))
        attend_backward(piece, rows, keys_in(kv_C2md), values_in(kv_C2md), out);
      sums_pass = pass_on(*plan->group, dkv_C2md);
      if (passes) kv_C2md = pass.wait();
    }
    // After the last step the sums go to the rank whose keys they belong to.
    at::Tensor own_C2md = sums_pass.wait();
    if (KEYSEAT_MUTATED("sums_of_the_neighbour")) own_C2md = dkv_C2md;
    const at::ScalarType type = k.scalar_type();
    return {dq.to(q.scalar_type()), keys_in(own_C2md).to(type), values_in(own_C2md).to(type), {}};
  }
};

}  // namespace

at::Tensor ring_attention(const at::Tensor& q_Cnd, const at::Tensor& k_Cmd, const at::Tensor& v_Cmd,
                          const RowAttentionPlanPointer& plan) {
  return RingAttentionFunction::apply(q_Cnd, k_Cmd, v_Cmd, plan);
}

}  // namespace keyseat::nn
