#include "train/row_statistics.h"

namespace keyseat::train {

namespace {

// The sample that a row index of the packed row belongs to.
size_t sample_at(const std::vector<int64_t>& cu_seqlens, int64_t row) {
  const auto behind = std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), row);
  return static_cast<size_t>(behind - cu_seqlens.begin()) - 1;
}

void add_images(const Row& row, int64_t merge, RowStatistics& statistics) {
  const RowFacts& facts = row.facts;
  std::vector<int64_t> images(static_cast<size_t>(facts.counts.samples), 0);
  const at::Tensor visual_dst_V = row.tensors.get("visual_dst");
  int64_t token = 0;  // the image's first one among the visual tokens
  for (size_t i = 0; i + 2 < facts.grid_thw.size(); i += 3) {
    const int64_t height = facts.grid_thw[i + 1], width = facts.grid_thw[i + 2];
    const int64_t tokens = facts.grid_thw[i] * (height / merge) * (width / merge);
    ++statistics.image_tokens[bucket_of(tokens)];
    const int64_t shorter = std::max<int64_t>(std::min(height, width), 1);
    ++statistics.aspect_sixteenths[bucket_of(16 * std::max(height, width) / shorter)];
    if (tokens > 0 && visual_dst_V.defined() && token < visual_dst_V.numel()) {
      const int64_t place = visual_dst_V.const_data_ptr<int64_t>()[token];
      const size_t sample = sample_at(facts.cu_seqlens, place);
      if (sample < images.size()) ++images[sample];
    }
    token += tokens;
  }
  for (const int64_t count : images) ++statistics.images_per_sample[bucket_of(count)];
}

}  // namespace

RowStatistics row_statistics(const std::vector<Row>& rows, int64_t merge) {
  RowStatistics statistics;
  for (const Row& row : rows) {
    const std::vector<int64_t>& ends = row.facts.cu_seqlens;
    for (int64_t s = 0; s < row.facts.counts.samples; ++s)
      ++statistics.sample_tokens[bucket_of(ends[s + 1] - ends[s])];
    if (merge > 0) add_images(row, merge, statistics);
  }
  return statistics;
}

}  // namespace keyseat::train
