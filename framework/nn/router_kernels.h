// Row kernels of the router, free of LibTorch. E is small (8 to 512) and a row stays in the first
// level cache, so plain loops that the compiler vectorises are enough: at 960 x 32 the whole router
// is a thousandth of its layer's GEMMs.
//
// All matrices are row-major; [begin, end) is the range of rows of one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace keyseat::nn {

template <typename T>
void softmax_rows(const T* logits, int64_t begin, int64_t end, int64_t experts, T* probability,
                  T* logsumexp) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = logits + row * experts;
    T* p = probability + row * experts;
    const T maximum = *std::max_element(x, x + experts);
    T sum = 0;
    for (int64_t e = 0; e < experts; ++e) {
      p[e] = std::exp(x[e] - maximum);
      sum += p[e];
    }
    const T scale = 1 / sum;
    for (int64_t e = 0; e < experts; ++e) p[e] *= scale;
    logsumexp[row] = maximum + std::log(sum);
  }
}

// Keeps the k best of a row sorted by insertion. A later value must be strictly greater to pass an
// earlier one, which is the tie rule; NaN passes nothing, so indices stay valid and distinct.
template <typename T>
void top_k_rows(const T* values, int64_t begin, int64_t end, int64_t experts, int64_t top_k,
                int64_t* index) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = values + row * experts;
    int64_t* best = index + row * top_k;
    int64_t filled = 0;
    for (int64_t e = 0; e < experts; ++e) {
      if (filled == top_k) {
        if (!(x[e] > x[best[top_k - 1]])) continue;
      } else {
        ++filled;
      }
      int64_t slot = filled - 1;
      for (; slot > 0 && x[e] > x[best[slot - 1]]; --slot) best[slot] = best[slot - 1];
      best[slot] = e;
    }
  }
}

template <typename T>
void gather_weights(const T* probability, const int64_t* index, int64_t rows, int64_t experts,
                    int64_t top_k, bool renormalise, T* weight) {
  for (int64_t row = 0; row < rows; ++row) {
    T* w = weight + row * top_k;
    T sum = 0;
    for (int64_t k = 0; k < top_k; ++k) {
      w[k] = probability[row * experts + index[row * top_k + k]];
      sum += w[k];
    }
    if (!renormalise) continue;
    for (int64_t k = 0; k < top_k; ++k) w[k] /= sum;
  }
}

// Sums over rows run in fp64: their order then does not show in fp32, and a row of 100,000 tokens
// loses nothing.
template <typename T>
void sum_statistics(const T* probability, const T* logsumexp, const int64_t* index, int64_t rows,
                    int64_t experts, int64_t top_k, T* stats, T* z) {
  std::vector<double> sums(static_cast<size_t>(experts), 0.0);
  double squares = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const T* p = probability + row * experts;
    for (int64_t e = 0; e < experts; ++e) sums[static_cast<size_t>(e)] += p[e];
    for (int64_t k = 0; k < top_k; ++k) stats[experts + index[row * top_k + k]] += 1;
    squares += static_cast<double>(logsumexp[row]) * logsumexp[row];
  }
  for (int64_t e = 0; e < experts; ++e) stats[e] = static_cast<T>(sums[static_cast<size_t>(e)]);
  *z = static_cast<T>(squares);
}

// What the gradient of the logits is made of; null pointers where no gradient came.
template <typename T>
struct RouterGradient {
  const T* probability = nullptr;      // [T, E]
  const T* logsumexp = nullptr;        // [T]
  const int64_t* index = nullptr;      // [T, K]
  const T* weight = nullptr;           // [T, K]
  const T* weight_gradient = nullptr;  // [T, K]
  const T* stats_gradient = nullptr;   // [2, E]; row 1 (counts) carries none
  const T* z_gradient = nullptr;       // [1]
  int64_t experts = 0, top_k = 0;
  bool renormalise = false;
};

// d logits = p * (g - sum p g) + z' * 2 * logsumexp * p, where g is the gradient of the
// probabilities: that of the statistics, plus that of the k weights through the renormalisation.
template <typename T>
void logits_gradient(const RouterGradient<T>& problem, int64_t begin, int64_t end, T* gradient) {
  const int64_t experts = problem.experts;
  const int64_t top_k = problem.top_k;
  for (int64_t row = begin; row < end; ++row) {
    const T* p = problem.probability + row * experts;
    T* g = gradient + row * experts;
    if (problem.stats_gradient != nullptr) {
      std::copy_n(problem.stats_gradient, experts, g);
    } else {
      std::fill_n(g, experts, T{0});
    }
    if (problem.weight_gradient != nullptr) {
      const T* dw = problem.weight_gradient + row * top_k;
      const int64_t* index = problem.index + row * top_k;
      if (problem.renormalise) {
        const T* w = problem.weight + row * top_k;
        T sum = 0, dot = 0;
        for (int64_t k = 0; k < top_k; ++k) sum += p[index[k]];
        for (int64_t k = 0; k < top_k; ++k) dot += dw[k] * w[k];
        for (int64_t k = 0; k < top_k; ++k) g[index[k]] += (dw[k] - dot) / sum;
      } else {
        for (int64_t k = 0; k < top_k; ++k) g[index[k]] += dw[k];
      }
    }
    T dot = 0;
    for (int64_t e = 0; e < experts; ++e) dot += p[e] * g[e];
    const T z =
        problem.z_gradient == nullptr ? T{0} : *problem.z_gradient * 2 * problem.logsumexp[row];
    for (int64_t e = 0; e < experts; ++e) g[e] = p[e] * (g[e] - dot + z);
  }
}

}  // namespace keyseat::nn
