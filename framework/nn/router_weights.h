// From router logits to routing weights, statistics and z: the differentiable half of the router
// behind the top-k decision. Legend: T rows, E experts, K top-k.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace keyseat::nn {

struct RouterProbabilities {
  at::Tensor probability_TE;  // softmax over all experts
  at::Tensor logsumexp_T;     // of the logits
};

// No gradient. naive: LibTorch's ops, for any device.
RouterProbabilities router_probabilities(const at::Tensor& logits_TE, bool naive);

struct RouterWeights {
  at::Tensor weight_TK, stats_2E, z_1;  // as in Routing
};

// Rows >= real are the tail. index_TK may have been kept from an earlier run of the same rows.
// The fast form reuses the probabilities of the decision and is one node of the graph.
RouterWeights router_weights(const at::Tensor& logits_TE, const RouterProbabilities& probabilities,
                             const at::Tensor& index_TK, int64_t real, bool renormalise);
RouterWeights router_weights_naive(const at::Tensor& logits_TE, const at::Tensor& index_TK,
                                   int64_t real, bool renormalise);

}  // namespace keyseat::nn
