// What tensor and context parallelism do inside a layer. Every function is the identity, or its
// one-rank form, where the mesh of the context has one rank on the axis. Legend: T own rows, C rows
// of the context rank, H hidden, V vocabulary, R rows of which logits are wanted, n query heads, m
// key/value heads, d head dim.
#pragma once

#include "keyseat/context.h"
#include "keyseat/params.h"

namespace keyseat::nn {

// Whether this rank holds a part of the parameter: by its local shape.
KEYSEAT_API bool is_split(const Params& params, const std::string& name);

// In front of linears that are cut by output columns: rows of the layout kRows become those of the
// context rank. With sequence parallel: all-gather over tensor, reduce-scatter in backward. Else,
// and for Layout::kImages, whose rows are equal over tensor: identity, all-reduce in backward.
KEYSEAT_API at::Tensor enter_split(const at::Tensor& x_TH, Layout layout, StepContext& context);
// Behind linears that are cut by input columns: sums the parts. With sequence parallel:
// reduce-scatter, all-gather in backward; else all-reduce, identity in backward. A bias is added
// behind it.
KEYSEAT_API at::Tensor leave_split(const at::Tensor& parts_CH, Layout layout, StepContext& context);

// The key/value heads that this rank's query heads use, out of all `heads` of a projection that is
// whole on every tensor rank: [C, m, d] -> [C, m', d]. `query_heads`: of all ranks. R4, on every
// rank, where the heads of a rank neither use whole key heads nor lie in the group of one.
KEYSEAT_API at::Tensor own_key_heads(const at::Tensor& x_Cmd, int64_t query_heads,
                                     StepContext& context);

// Causal attention inside the segments of the packed row (row().cu_seqlens) for the rows of this
// context rank: q [C, n, d], k and v [C, m, d] -> [C, n, d]. Keys and values of the other context
// ranks are gathered, or pass round a ring (Mesh::context_ring) whose partial softmaxes are merged
// in fp32 by their logsumexps. R4 where rows or segments are not those of the packed row.
KEYSEAT_API at::Tensor row_attention(const at::Tensor& q_Cnd, const at::Tensor& k_Cmd,
                                     const at::Tensor& v_Cmd, double scale, StepContext& context);

// Rows of a table whose vocabulary is cut over tensor: ids [C] -> own rows [T, H]. Ids outside of
// the vocabulary (on the CPU), and a table that is not this rank's piece of it, are R4.
KEYSEAT_API at::Tensor split_embedding(const at::Tensor& ids_C, const ParamHandle& table_VH,
                                       int64_t vocabulary, StepContext& context);

// As linear_cross_entropy, for own rows x_TH and a head whose vocabulary is cut over tensor. [1]
// fp32: this rank's share of the sum over the rows of the context rank, so that the shares of all
// ranks add up. labels_C: of the context rank's rows. Its gradient is right where all ranks of the
// tensor group seed the loss alike. per_token_T, if given, receives the loss of every own row.
KEYSEAT_API at::Tensor split_cross_entropy(const at::Tensor& x_TH, const ParamHandle& weight_VH,
                                           int64_t vocabulary, const at::Tensor& labels_C,
                                           StepContext& context, at::Tensor* per_token_T = nullptr);

// fp32 logits [R, V] of rows of the packed row, equal on all ranks of the group; no gradient.
KEYSEAT_API at::Tensor split_logits(const at::Tensor& x_TH, const ParamHandle& weight_VH,
                                    int64_t vocabulary, const at::Tensor& rows_R,
                                    StepContext& context);

}  // namespace keyseat::nn
