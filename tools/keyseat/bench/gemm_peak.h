// The best GEMM rate of this machine, measured in the run whose figures it is compared with.
#pragma once

#include <string>
#include <vector>

namespace keyseat::tool::bench {

struct GemmRate {
  int64_t m, n, k;
  double gflops;  // best of several runs, multiply and add counted as two
};

// fp32 products of the sizes of a training step and larger, on the threads of LibTorch. Takes about
// a second.
std::vector<GemmRate> measure_gemm_rates();

double best_gflops(const std::vector<GemmRate>& rates);

}  // namespace keyseat::tool::bench
