#include "keyseat/random.h"

#include <ATen/core/PhiloxRNGEngine.h>
#include <xxhash.h>

namespace keyseat {
namespace {

constexpr int64_t kBlock = 4;  // numbers per step of the counter
constexpr float kTwoPi = 6.28318530717958647692F;

// Two normal numbers out of two uniform ones (Box-Muller).
void normal_pair(uint32_t a, uint32_t b, float scale, float* out) {
  constexpr float kUnit = 1.0F / (1 << 24);
  const float radius =
      scale * std::sqrt(-2.0F * std::log(static_cast<float>((a >> 8) + 1) * kUnit));
  const float angle = kTwoPi * static_cast<float>(b >> 8) * kUnit;
  out[0] = radius * std::cos(angle);
  out[1] = radius * std::sin(angle);
}

}  // namespace

uint64_t derive_seed(int64_t seed, std::string_view purpose) {
  return XXH3_64bits_withSeed(purpose.data(), purpose.size(), static_cast<uint64_t>(seed));
}

void fill_normal(const at::Tensor& tensor, uint64_t seed, double standard_deviation,
                 int64_t first) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.scalar_type() == at::kFloat,
              "fill_normal needs a contiguous fp32 tensor");
  float* const out = tensor.data_ptr<float>();
  const int64_t end = first + tensor.numel();
  const auto scale = static_cast<float>(standard_deviation);
  at::parallel_for(first / kBlock, (end + kBlock - 1) / kBlock, 4096,
                   [&](int64_t from, int64_t to) {
                     at::Philox4_32 engine(seed, 0, static_cast<uint64_t>(from));
                     for (int64_t block = from; block < to; ++block) {
                       float numbers[kBlock];
                       for (int pair = 0; pair < kBlock; pair += 2) {
                         const uint32_t a = engine();
                         normal_pair(a, engine(), scale, numbers + pair);
                       }
                       const int64_t begin = std::max(block * kBlock, first);
                       const int64_t stop = std::min((block + 1) * kBlock, end);
                       std::copy(numbers + (begin - block * kBlock),
                                 numbers + (stop - block * kBlock), out + (begin - first));
                     }
                   });
}

}  // namespace keyseat
