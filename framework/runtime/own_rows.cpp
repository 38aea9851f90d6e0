#include "runtime/own_rows.h"

#include <ATen/ops/cat.h>

#include <numeric>

namespace keyseat {

std::vector<RowRange> context_chunks(int64_t row_tokens, int64_t context, int64_t context_rank) {
  const auto chunk = [&](int64_t k) {
    return RowRange{k * row_tokens / (2 * context), (k + 1) * row_tokens / (2 * context)};
  };
  return {chunk(context_rank), chunk(2 * context - 1 - context_rank)};
}

std::vector<RowRange> own_rows(int64_t row_tokens, Layout layout, const Mesh& mesh) {
  if (layout == Layout::kWhole) return {{0, row_tokens}};
  const int64_t context = mesh.degree(Axis::kContext);
  const std::vector<RowRange> chunks =
      context_chunks(row_tokens, context, mesh.coordinate(Axis::kContext));
  if (layout != Layout::kRows || !mesh.sequence_parallel()) return chunks;
  // A slice of both chunks, laid side by side.
  const int64_t slice = row_tokens / context / mesh.degree(Axis::kTensor);
  const int64_t first = mesh.coordinate(Axis::kTensor) * slice;
  std::vector<RowRange> own;
  int64_t passed = 0;
  for (const RowRange& chunk : chunks) {
    const int64_t size = chunk.end - chunk.begin;
    const int64_t begin = std::clamp(first - passed, int64_t{0}, size);
    const int64_t end = std::clamp(first + slice - passed, int64_t{0}, size);
    if (begin < end) own.push_back({chunk.begin + begin, chunk.begin + end});
    passed += size;
  }
  return own;
}

std::vector<int64_t> deal_images(const std::vector<int64_t>& grid_thw, int64_t context) {
  const auto images = static_cast<int64_t>(grid_thw.size()) / 3;
  const auto patches = [&](int64_t image) {
    const int64_t* const grid = grid_thw.data() + 3 * image;
    return grid[0] * grid[1] * grid[2];
  };
  int64_t all = 0;
  for (int64_t image = 0; image < images; ++image) all += patches(image);
  std::vector<int64_t> first(static_cast<size_t>(context) + 1, images);
  first[0] = 0;
  int64_t before = 0, rank = 0;
  for (int64_t image = 0; image < images && all > 0; ++image) {
    const int64_t twice_middle = 2 * before + patches(image);
    const int64_t owner = std::min(context - 1, context * twice_middle / (2 * all));
    while (rank < owner) first[static_cast<size_t>(++rank)] = image;
    before += patches(image);
  }
  return first;
}

const std::vector<int64_t>& image_counts(DimSymbol rows, const RowShare& share) {
  return rows == DimSymbol::kP   ? share.patch_count
         : rows == DimSymbol::kV ? share.visual_count
                                 : share.image_count;
}

RowRange own_images(DimSymbol rows, const RowShare& share, const Mesh& mesh) {
  const std::vector<int64_t>& counts = image_counts(rows, share);
  const auto own = counts.begin() + mesh.coordinate(Axis::kContext);
  const int64_t begin = std::accumulate(counts.begin(), own, int64_t{0});
  return {begin, begin + *own};
}

at::Tensor in_row_order(const at::Tensor& by_rank, int64_t context) {
  std::vector<std::pair<int64_t, at::Tensor>> parts;  // by their first row
  int64_t passed = 0;
  for (int64_t rank = 0; rank < context; ++rank) {
    for (const RowRange& chunk : context_chunks(by_rank.size(0), context, rank)) {
      parts.emplace_back(chunk.begin, by_rank.narrow(0, passed, chunk.end - chunk.begin));
      passed += chunk.end - chunk.begin;
    }
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<at::Tensor> ordered;
  for (const auto& [begin, part] : parts) ordered.push_back(part);
  return at::cat(ordered);
}

at::Tensor copy_ranges(const at::Tensor& tensor, int dim, const std::vector<RowRange>& ranges) {
  std::vector<at::Tensor> parts;
  for (const RowRange& range : ranges)
    parts.push_back(tensor.narrow(dim, range.begin, range.end - range.begin));
  if (parts.empty()) parts.push_back(tensor.narrow(dim, 0, 0));
  return at::cat(parts, dim);
}

}  // namespace keyseat
