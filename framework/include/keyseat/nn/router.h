// Router of a mixture of experts: fp32 softmax over all experts, top-k with ties to the lower
// index, renormalisation, statistics for the auxiliary losses. Legend: T rows, H hidden, E experts,
// K top-k.
#pragma once

#include "keyseat/context.h"
#include "keyseat/params.h"

namespace keyseat::nn {

// Which choices of an expert stay when it has more than its capacity.
enum class DropPolicy { kProbability, kPosition };

struct RouterOptions {
  int64_t top_k = 1;
  bool renormalise = true;     // divide the k weights by their sum
  double capacity_factor = 0;  // 0: no capacity
  bool capacity_pad = false;   // plans fill experts up to the capacity
  DropPolicy drop_policy = DropPolicy::kProbability;
  bool forced_balance = false;  // experts are dealt out, the logits only weigh them
};

// Most choices of one expert among `tokens` rows of this rank: ceil(tokens * top_k / experts *
// capacity_factor); 0 without a capacity.
KEYSEAT_API int64_t expert_capacity(const RouterOptions& options, int64_t tokens, int64_t experts);

struct Routing {
  at::Tensor logits_TE;  // fp32
  // i64, descending probability (not with forced balance); -1 in rows of the padding tail and for
  // choices above the capacity.
  at::Tensor index_TK;
  at::Tensor weight_TK;  // fp32, differentiable; 0 where the index is -1
  // fp32 [2, E]: row 0 sums of full-softmax probabilities over real tokens (differentiable), row 1
  // assignments per expert, those above the capacity included.
  at::Tensor stats_2E;
  at::Tensor z_1;  // fp32 [1]: sum over real tokens of logsumexp(logits)^2, differentiable
};

// gate_EH: weight of the router, fp32 value. Rows >= context.row().counts.tokens are padding. top-k
// goes through keep.
KEYSEAT_API Routing route(const at::Tensor& x_TH, const ParamHandle& gate_EH,
                          const RouterOptions& options, StepContext& context);

// The k largest of each row, descending, equal values by lower index first. values fp32 [T, E] ->
// i64 [T, K].
KEYSEAT_API at::Tensor top_k_by_index(const at::Tensor& values_TE, int64_t top_k, Kernels kernels);

// E * sum_e f_e * (sum over layers of P_e sums) / layers with f_e = assignments / (layers *
// tokens): the SUM form of the load-balancing loss of this rank's tokens (7-contracts section 3),
// to be divided by the step's real tokens. counts must already be summed over the ranks that share
// the micro-batch; tokens likewise. pooled: f over all layers together (as transformers); otherwise
// the mean over layers of the same expression.
KEYSEAT_API at::Tensor load_balancing_loss(const std::vector<at::Tensor>& stats_2E,
                                           const at::Tensor& counts_LE, int64_t tokens,
                                           bool pooled);

}  // namespace keyseat::nn
