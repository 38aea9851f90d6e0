#include "nn/row_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/attention.h"
#include "keyseat/nn/tensor_parallel.h"
#include "nn/attention_flash.h"
#include "nn/attention_pieces.h"
#include "nn/contract.h"
#include "nn/naive.h"
#include "runtime/own_rows.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_row_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const RowAttentionPlan& plan) {
  int64_t own_rows = 0;
  for (const RowRange& chunk : plan.own_chunks()) own_rows += chunk.end - chunk.begin;
  const bool shapes_fit = q.dim() == 3 && k.dim() == 3 && v.sizes() == k.sizes() &&
                          q.size(0) == own_rows && k.size(0) == own_rows &&
                          k.size(2) == q.size(2) && k.size(1) > 0 && q.size(1) % k.size(1) == 0;
  if (!shapes_fit) {
    contract_error(
        fmt::format("attention over {} context ranks got q [{}], k [{}], v [{}] on a rank with {} "
                    "of {} rows",
                    plan.group->size(), fmt::join(q.sizes(), ", "), fmt::join(k.sizes(), ", "),
                    fmt::join(v.sizes(), ", "), own_rows, plan.row_tokens),
        "q is [C, n, d], k and v are [C, m, d] with the C rows of the context rank, and n is a "
        "multiple of m",
        "enter_split gives the rows of the context rank; check the heads");
  }
  const std::vector<int64_t>& segments = plan.cu_seqlens;
  const bool segments_fit = segments.empty()
                                ? plan.row_tokens == 0
                                : segments.front() == 0 && segments.back() == plan.row_tokens &&
                                      std::is_sorted(segments.begin(), segments.end());
  if (!segments_fit) {
    contract_error(fmt::format("segments [{}] do not cover the {} rows of the packed row",
                               fmt::join(segments, ", "), plan.row_tokens),
                   "cu_seqlens rises from 0 to the number of rows, padding included",
                   "pass facts as share_row gives them");
  }
}

// Differentiable: the gradients of all ranks are added up.
struct GatherContextRows : torch::autograd::Function<GatherContextRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& own,
                            const RankGroupPointer& group) {
    context->saved_data["group"] = RankGroup::capsule(group);
    return group->all_gather(own);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const RankGroupPointer group = RankGroup::from_capsule(context->saved_data["group"]);
    return {group->reduce_scatter(gradients[0]), {}};
  }
};

// The oracle: full score matrices of the gathered row, gradients by autograd. On a ring as well.
at::Tensor row_attention_naive(const at::Tensor& q_Cnd, const at::Tensor& k_Cmd,
                               const at::Tensor& v_Cmd, const RowAttentionPlan& plan) {
  const at::Tensor kv_T2md = in_row_order(
      GatherContextRows::apply(pack_keys_values(k_Cmd, v_Cmd), plan.group), plan.group->size());
  const at::Tensor k_Tmd = keys_in(kv_T2md), v_Tmd = values_in(kv_T2md);
  std::vector<at::Tensor> outputs;
  const auto attend_piece = [&](const AttentionPiece& piece) {
    outputs.push_back(naive::visible_attention(
        q_Cnd.narrow(0, piece.query, piece.queries), k_Tmd.narrow(0, piece.key, piece.keys),
        v_Tmd.narrow(0, piece.key, piece.keys), piece.visible, plan.scale));
  };
  // Against the whole row every query has one piece, in the order of the queries.
  for (const AttentionPiece& piece :
       attention_pieces(plan.own_chunks(), {{0, plan.row_tokens}}, plan.cu_seqlens))
    attend_piece(piece);
  if (outputs.empty()) attend_piece({});  // no rows: an empty result with a graph
  return at::cat(outputs, 0);
}

}  // namespace

at::Tensor RowAttentionPlan::by_rank(const at::Tensor& in_row_order) const {
  std::vector<at::Tensor> parts;
  for (const std::vector<RowRange>& of_rank : chunks) {
    for (const RowRange& chunk : of_rank)
      parts.push_back(in_row_order.narrow(0, chunk.begin, chunk.end - chunk.begin));
  }
  return at::cat(parts, 0);
}

at::Tensor pack_keys_values(const at::Tensor& k_Cmd, const at::Tensor& v_Cmd) {
  return at::stack({k_Cmd, v_Cmd}, 1);
}

at::Tensor row_attention(const at::Tensor& q_Cnd, const at::Tensor& k_Cmd, const at::Tensor& v_Cmd,
                         double scale, StepContext& context) {
  auto plan = c10::make_intrusive<RowAttentionPlan>();
  plan->group = group_over(context, {Axis::kContext});
  if (plan->group->size() == 1) {
    return varlen_attention(q_Cnd, k_Cmd, v_Cmd, context.row().cu_seqlens, /*causal=*/true, scale,
                            context.kernels());
  }
  plan->cu_seqlens = context.row().cu_seqlens;
  plan->row_tokens = context.row().share.row_tokens;
  plan->scale = scale;
  for (int64_t rank = 0; rank < plan->group->size(); ++rank)
    plan->chunks.push_back(context_chunks(plan->row_tokens, plan->group->size(), rank));
  check_row_shapes(q_Cnd, k_Cmd, v_Cmd, *plan);
  if (context.kernels() == Kernels::kNaive || q_Cnd.is_meta())
    return row_attention_naive(q_Cnd, k_Cmd, v_Cmd, *plan);
  const auto attention = context.mesh().context_ring() ? ring_attention : gathered_attention;
  return attention(last_dim_packed(q_Cnd), k_Cmd, v_Cmd, plan);
}

}  // namespace keyseat::nn
