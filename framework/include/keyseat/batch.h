// A micro-batch: one packed row of whole samples, and what is known about it on the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/tensors.h"

namespace keyseat {

// Sizes of a row that every rank learns before the first forward (the Counts step).
struct RowCounts {
  int64_t tokens = 0;         // T without the padding tail = useful tokens
  int64_t padding = 0;        // rows of the tail segment
  int64_t patches = 0;        // P
  int64_t visual_tokens = 0;  // V
  int64_t images = 0;         // N
  int64_t supervised = 0;     // labels that count
  int64_t samples = 0;        // decoded samples
  int64_t failed = 0;         // slots left empty by a sample that could not be decoded

  RowCounts& operator+=(const RowCounts& other);
};

// What a rank of a (context, tensor) group has of a packed row (keyseat/row_share.h); empty where
// the group is one rank, which has all of it.
struct RowShare {
  int64_t row_tokens = 0;  // T of the packed row, padding included
  // By context rank: images, patches and visual tokens of the images that it encodes.
  std::vector<int64_t> image_count, patch_count, visual_count;
  std::vector<int64_t> own_visual;  // visual tokens of the packed row that lie in own kRows rows
};

// Host facts of a row; the device never has to be asked for them.
struct RowFacts {
  // Of what this rank has: tokens, padding and supervised of kRows; patches, visual tokens and
  // images of kImages. Samples and failed are those of the packed row.
  RowCounts counts;
  // [S + 1] from 0, of the packed row; the padding tail, if any, is the last segment
  std::vector<int64_t> cu_seqlens;
  std::vector<int64_t>
      vision_cu_seqlens;          // [frames + 1] in patches: attention segments of the tower
  std::vector<int64_t> grid_thw;  // [N * 3], row-major
  RowShare share;
  // Real tokens of this micro-batch over all ranks that share it; known after Counts.
  int64_t shared_tokens = 0;
  std::vector<int64_t> sample_ids;  // index of each sample in the data source, in row order
  int64_t row_tokens() const { return counts.tokens + counts.padding; }  // T of kRows
};

// A decoded row. Standard names of `tensors` (7-contracts section 4), all on the run's device:
//   tokens i64 [T], labels i64 [T] (already shifted inside a sample, its last row -100; -100 in the
//   tail), segment_ids i64 [T], cu_seqlens i32 [S+1], position_ids i64 [3,T] (restart per sample),
//   patches f32 [P, 3*t*p*p], grid_thw i64 [N,3], visual_dst i64 [V] (row of every visual token,
//   images and videos in row order), logit_rows i64 [R] (rows of which logits are wanted; empty in
//   training).
// Each has the layout that batch_tensors() gives; visual_dst counts this rank's own rows,
// logit_rows those of the packed row.
struct KEYSEAT_API Row {
  Tensors tensors;
  RowFacts facts;
};

// Standard names of a row, with their dtype and number of dimensions. Units may read these without
// a writer; no unit may write them.
struct BatchTensor {
  const char* name;
  at::ScalarType dtype;
  int dims;
  Layout layout;
};
KEYSEAT_API const std::vector<BatchTensor>& batch_tensors();

// What blocks ask of the data source; the core merges the specs of all blocks (a contradiction is
// C4).
struct KEYSEAT_API InputSpec {
  // Vision; patch_size 0 where no block takes images.
  int64_t patch_size = 0;
  int64_t temporal_patch_size = 0;
  int64_t merge_size = 0;
  int64_t channels = 3;
  int64_t min_pixels = 0, max_pixels = 0;  // bounds of smart_resize
  std::vector<double> image_mean, image_std;
  // Text; -1 where there is none.
  int64_t vocab_size = 0;
  int64_t image_token_id = -1, video_token_id = -1, vision_start_token_id = -1,
          vision_end_token_id = -1;
  std::string position_rule;  // "mrope" or "plain"; empty: not declared by this block
  int64_t max_positions = 0;
};

}  // namespace keyseat
