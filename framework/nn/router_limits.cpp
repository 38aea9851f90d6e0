#include "nn/router_limits.h"

#include <ATen/ops/full.h>

#include <cmath>
#include <numeric>
#include <random>

#include "keyseat/mutation.h"

namespace keyseat::nn {

int64_t expert_capacity(const RouterOptions& options, int64_t tokens, int64_t experts) {
  if (options.capacity_factor <= 0) return 0;
  const double balanced =
      static_cast<double>(tokens * options.top_k) / static_cast<double>(experts);
  return static_cast<int64_t>(std::ceil(balanced * options.capacity_factor));
}

at::Tensor balanced_choices(int64_t rows, int64_t real, int64_t top_k, int64_t experts,
                            uint64_t seed) {
  at::Tensor index_TK = at::full({rows, top_k}, -1, at::kLong);
  int64_t* index = index_TK.mutable_data_ptr<int64_t>();
  std::mt19937_64 random(seed);
  std::vector<int64_t> deck(static_cast<size_t>(experts));
  std::iota(deck.begin(), deck.end(), 0);
  size_t next = deck.size();
  for (int64_t row = 0; row < real; ++row, index += top_k) {
    for (int64_t k = 0; k < top_k; ++k) {
      if (next == deck.size()) {
        next = 0;
        for (size_t i = deck.size() - 1; i > 0; --i) std::swap(deck[i], deck[random() % (i + 1)]);
        // The rest of this token's choices must differ from what it got out of the last deal.
        const auto taken = [&](int64_t expert) {
          return std::find(index, index + k, expert) != index + k;
        };
        std::stable_partition(deck.begin(), deck.end(),
                              [&](int64_t expert) { return !taken(expert); });
      }
      index[k] = deck[next++];
    }
  }
  return index_TK;
}

at::Tensor drop_above_capacity(const at::Tensor& index_TK, const at::Tensor& weight_TK,
                               int64_t experts, int64_t capacity, DropPolicy policy) {
  at::Tensor kept_TK = index_TK.to(at::kCPU).clone();
  const at::Tensor weight = weight_TK.to(at::kCPU, at::kDouble).contiguous();
  int64_t* kept = kept_TK.mutable_data_ptr<int64_t>();
  const double* weights = weight.const_data_ptr<double>();
  std::vector<std::vector<int64_t>> choices(static_cast<size_t>(experts));
  for (int64_t i = 0; i < kept_TK.numel(); ++i) {
    if (kept[i] >= 0) choices[static_cast<size_t>(kept[i])].push_back(i);
  }
  for (std::vector<int64_t>& of_expert : choices) {  // in the order of rows
    // As a top-k over the tokens of an expert would: it needs as many of them as it keeps.
    if (KEYSEAT_MUTATED("capacity is at most T")) of_expert.at(static_cast<size_t>(capacity) - 1);
    if (static_cast<int64_t>(of_expert.size()) <= capacity) continue;
    if (policy == DropPolicy::kProbability) {
      std::stable_sort(of_expert.begin(), of_expert.end(),
                       [&](int64_t a, int64_t b) { return weights[a] > weights[b]; });
    }
    for (size_t i = static_cast<size_t>(capacity); i < of_expert.size(); ++i) {
      kept[of_expert[i]] = -1;
    }
  }
  return kept_TK.to(index_TK.device());
}

}  // namespace keyseat::nn
