#include "train/grad_norm.h"

#include <ATen/Parallel.h>

#include "train/grad_norm_kernel.h"

namespace keyseat {
namespace {

constexpr int64_t kChunk = 65536;  // fixed, so that the order of the sums never changes

struct Chunk {
  const float* values;
  size_t count;
};

}  // namespace

double sum_of_squares(const std::vector<at::Tensor>& tensors) {
  double sum = 0;
  std::vector<Chunk> chunks;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_cpu()) {
      sum += tensor.to(at::kDouble).square().sum().item<double>();
      continue;
    }
    const float* const values = tensor.const_data_ptr<float>();
    for (int64_t first = 0; first < tensor.numel(); first += kChunk) {
      chunks.push_back(
          {values + first, static_cast<size_t>(std::min(kChunk, tensor.numel() - first))});
    }
  }
  // One parallel region for all tensors: entering one costs milliseconds where cores are shared.
  std::vector<double> parts(chunks.size());
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      parts[i] = sum_of_squares_chunk(chunks[i].values, chunks[i].count);
    }
  });
  for (double part : parts) sum += part;
  return sum;
}

}  // namespace keyseat
