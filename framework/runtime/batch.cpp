#include "keyseat/batch.h"

namespace keyseat {

RowCounts& RowCounts::operator+=(const RowCounts& other) {
  tokens += other.tokens;
  padding += other.padding;
  patches += other.patches;
  visual_tokens += other.visual_tokens;
  images += other.images;
  supervised += other.supervised;
  samples += other.samples;
  failed += other.failed;
  return *this;
}

const std::vector<BatchTensor>& batch_tensors() {
  static const std::vector<BatchTensor> tensors{
      {"tokens", at::kLong, 1},    {"labels", at::kLong, 1},       {"segment_ids", at::kLong, 1},
      {"cu_seqlens", at::kInt, 1}, {"position_ids", at::kLong, 2}, {"patches", at::kFloat, 2},
      {"grid_thw", at::kLong, 2},  {"visual_dst", at::kLong, 1},   {"logit_rows", at::kLong, 1}};
  return tensors;
}

}  // namespace keyseat
