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
      {"tokens", at::kLong, 1, Layout::kContextRows},
      {"labels", at::kLong, 1, Layout::kContextRows},
      {"segment_ids", at::kLong, 1, Layout::kContextRows},
      {"cu_seqlens", at::kInt, 1, Layout::kWhole},
      {"position_ids", at::kLong, 2, Layout::kContextRows},
      {"patches", at::kFloat, 2, Layout::kImages},
      {"grid_thw", at::kLong, 2, Layout::kImages},
      {"visual_dst", at::kLong, 1, Layout::kRows},
      {"logit_rows", at::kLong, 1, Layout::kWhole}};
  return tensors;
}

}  // namespace keyseat
