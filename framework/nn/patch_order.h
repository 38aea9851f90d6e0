// Merge-block order of vision patches (4-models section 1): image by image, frame by frame, blocks
// of merge_size x merge_size row by row, patches row by row inside a block.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "nn/contract.h"

namespace keyseat::nn {

// Calls visit(y, x, h, w) for every patch.
template <typename Visit>
void for_each_patch(const std::vector<int64_t>& grid_thw, int64_t merge_size, const Visit& visit) {
  for (size_t i = 0; i + 2 < grid_thw.size(); i += 3) {
    const int64_t frames = grid_thw[i], h = grid_thw[i + 1], w = grid_thw[i + 2];
    if (frames < 0 || h < 0 || w < 0 || h % merge_size != 0 || w % merge_size != 0) {
      contract_error(fmt::format("grid {} x {} x {} (frames, rows, columns of patches) does not "
                                 "divide into blocks of {} x {} patches",
                                 frames, h, w, merge_size, merge_size),
                     "patches are merged by whole blocks",
                     "the data plugin must resize images to multiples of patch size * merge size");
    }
    for (int64_t frame = 0; frame < frames; ++frame)
      for (int64_t block_y = 0; block_y < h; block_y += merge_size)
        for (int64_t block_x = 0; block_x < w; block_x += merge_size)
          for (int64_t y = block_y; y < block_y + merge_size; ++y)
            for (int64_t x = block_x; x < block_x + merge_size; ++x) visit(y, x, h, w);
  }
}

inline int64_t patch_count(const std::vector<int64_t>& grid_thw) {
  int64_t patches = 0;
  for (size_t i = 0; i + 2 < grid_thw.size(); i += 3)
    patches += grid_thw[i] * grid_thw[i + 1] * grid_thw[i + 2];
  return patches;
}

}  // namespace keyseat::nn
