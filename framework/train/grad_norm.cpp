#include "train/grad_norm.h"

#include <ATen/Parallel.h>

#include "train/grad_norm_kernel.h"

namespace keyseat {
namespace {

constexpr int64_t kChunk = 65536;  // fixed, so that the order of the sums never changes

struct Chunk {
  const float* values;
  size_t count;
  size_t list;
};

}  // namespace

std::vector<double> sums_of_squares(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<double> sums(lists.size(), 0.0);
  std::vector<Chunk> chunks;
  for (size_t list = 0; list < lists.size(); ++list) {
    for (const at::Tensor& tensor : lists[list]) {
      if (!tensor.is_cpu()) {
        sums[list] += tensor.to(at::kDouble).square().sum().item<double>();
        continue;
      }
      const float* const values = tensor.const_data_ptr<float>();
      for (int64_t first = 0; first < tensor.numel(); first += kChunk) {
        const int64_t count = std::min(kChunk, tensor.numel() - first);
        chunks.push_back({values + first, static_cast<size_t>(count), list});
      }
    }
  }
  // One parallel region for all tensors: entering one costs milliseconds where cores are shared.
  std::vector<double> parts(chunks.size());
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      parts[i] = sum_of_squares_chunk(chunks[i].values, chunks[i].count);
    }
  });
  for (size_t i = 0; i < chunks.size(); ++i) sums[chunks[i].list] += parts[i];
  return sums;
}

double sum_of_squares(const std::vector<at::Tensor>& tensors) {
  return sums_of_squares({tensors})[0];
}

}  // namespace keyseat
