// What the cases of a dispatcher share: sizes, and values by seed.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/rand.h>

namespace keyseat::conformance {

inline constexpr int64_t kHidden = 12, kExperts = 8, kTopK = 3;
// The same sums in another order (6-measuring).
inline constexpr double kLimit = 1e-5;

// Uniform in [0, 1), fp32.
inline at::Tensor random(at::IntArrayRef shape, uint64_t seed) {
  return at::rand(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

}  // namespace keyseat::conformance
