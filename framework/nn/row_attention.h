// Attention of a packed row whose rows lie on several context ranks.
// Legend: C rows of this context rank, T rows of the packed row, n query heads, m key/value heads,
// d head dim.
#pragma once

#include "keyseat/row_share.h"
#include "nn/rank_group.h"

namespace keyseat::nn {

// What all forms of it need, in forward and backward.
struct RowAttentionPlan final : torch::CustomClassHolder {
  RankGroupPointer group;                     // over context
  std::vector<std::vector<RowRange>> chunks;  // by context rank, whose rows they are in order
  std::vector<int64_t> cu_seqlens;            // of the packed row
  int64_t row_tokens = 0;                     // T
  double scale = 1;

  const std::vector<RowRange>& own_chunks() const {
    return chunks[static_cast<size_t>(group->rank())];
  }
  // The reverse of keyseat::in_row_order: rank by rank, as a reduce-scatter takes them.
  at::Tensor by_rank(const at::Tensor& in_row_order) const;
};
using RowAttentionPlanPointer = c10::intrusive_ptr<RowAttentionPlan>;

// Keys and values beside one another, so that one call moves both: [C, 2, m, d]. They are read by
// keys_in and values_in.
at::Tensor pack_keys_values(const at::Tensor& k_Cmd, const at::Tensor& v_Cmd);
inline at::Tensor keys_in(const at::Tensor& kv_C2md) { return kv_C2md.select(1, 0); }
inline at::Tensor values_in(const at::Tensor& kv_C2md) { return kv_C2md.select(1, 1); }

// Every rank gathers the keys and values of all, in forward and again in backward, where the
// gradients of the whole row go back by a reduce-scatter. Between them a rank keeps its own rows.
at::Tensor gathered_attention(const at::Tensor& q_Cnd, const at::Tensor& k_Cmd,
                              const at::Tensor& v_Cmd, const RowAttentionPlanPointer& plan);

// Keys and values pass from rank to rank while a rank computes with those it has: it never holds
// more than its own and the next ones. In backward their gradients travel behind them.
at::Tensor ring_attention(const at::Tensor& q_Cnd, const at::Tensor& k_Cmd, const at::Tensor& v_Cmd,
                          const RowAttentionPlanPointer& plan);

}  // namespace keyseat::nn
