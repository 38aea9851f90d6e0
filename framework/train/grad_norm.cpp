#include "train/grad_norm.h"

#include <ATen/Parallel.h>

#include "train/grad_norm_kernel.h"

namespace keyseat {
namespace {

constexpr int64_t kChunk = 65536;  // fixed, so that the order of the sums never changes

double sum_of_chunks(const at::Tensor& tensor) {
  const float* const values = tensor.const_data_ptr<float>();
  const int64_t count = tensor.numel();
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  std::vector<double> parts(static_cast<size_t>(chunks));
  at::parallel_for(0, chunks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t first = chunk * kChunk;
      parts[chunk] = sum_of_squares_chunk(values + first,
                                          static_cast<size_t>(std::min(kChunk, count - first)));
    }
  });
  double sum = 0;
  for (double part : parts) sum += part;
  return sum;
}

}  // namespace

double sum_of_squares(const std::vector<at::Tensor>& tensors) {
  double sum = 0;
  for (const at::Tensor& tensor : tensors) {
    sum += tensor.is_cpu() ? sum_of_chunks(tensor)
                           : tensor.to(at::kDouble).square().sum().item<double>();
  }
  return sum;
}

}  // namespace keyseat
