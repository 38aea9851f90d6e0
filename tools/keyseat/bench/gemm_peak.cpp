#include "tools/keyseat/bench/gemm_peak.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

namespace keyseat::tool::bench {

namespace {

// m, n, k: a projection, an expert's width times its group, a head's chunk, and two large squares.
constexpr int64_t kSizes[][3] = {
    {960, 512, 512}, {960, 2048, 512}, {512, 8192, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}};
constexpr double kSecondsPerSize = 0.2;

double seconds_of(at::Tensor& y, const at::Tensor& a, const at::Tensor& b) {
  const auto start = std::chrono::steady_clock::now();
  at::mm_out(y, a, b);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::vector<GemmRate> measure_gemm_rates() {
  const at::NoGradGuard no_grad;
  std::vector<GemmRate> rates;
  for (const auto& [m, n, k] : kSizes) {
    const at::Tensor a = at::ones({m, k}), b = at::ones({k, n});
    at::Tensor y = at::empty({m, n});
    double best = seconds_of(y, a, b);  // also the warm-up
    for (double spent = best; spent < kSecondsPerSize;) {
      const double seconds = seconds_of(y, a, b);
      best = std::min(best, seconds);
      spent += seconds;
    }
    rates.push_back({m, n, k, 2e-9 * static_cast<double>(m * n * k) / best});
  }
  return rates;
}

double best_gflops(const std::vector<GemmRate>& rates) {
  double best = 0;
  for (const GemmRate& rate : rates) best = std::max(best, rate.gflops);
  return best;
}

}  // namespace keyseat::tool::bench
