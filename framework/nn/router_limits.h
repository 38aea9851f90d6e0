// Choices that the router did not make freely: forced balance and the capacity of experts. Host
// code; index tensors are i64 [T, K]. Legend: T rows, K top-k, E experts.
#pragma once

#include "keyseat/nn/router.h"

namespace keyseat::nn {

// Deals out all experts again and again in random orders, K different ones per token: every expert
// gets equally many choices (up to one per deal). Rows from `real` on are -1.
at::Tensor balanced_choices(int64_t rows, int64_t real, int64_t top_k, int64_t experts,
                            uint64_t seed);

// The choices with -1 where an expert has more than `capacity` of them. weight_TK decides (fp32 or
// fp64; ties: the lower row stays), or the row alone.
at::Tensor drop_above_capacity(const at::Tensor& index_TK, const at::Tensor& weight_TK,
                               int64_t experts, int64_t capacity, DropPolicy policy);

}  // namespace keyseat::nn
