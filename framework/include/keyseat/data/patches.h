// Cutting resized images and video frames into the rows that a vision tower reads.
//
// One row is one patch of one frame group: values in the order (channel, frame, y, x), 3 * temporal
// * patch * patch floats. Rows go frame group by frame group, then block by block of merge x merge
// patches (row-major), row-major inside a block, so that the patches which a merger joins are
// neighbours. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "keyseat/data/fault.h"
#include "keyseat/data/image.h"
#include "keyseat/data/patch_grid.h"
#include "keyseat/export.h"

namespace keyseat::data {

struct PatchFormat {
  int64_t patch_size = 16;                       // pixels per patch edge
  int64_t temporal_patch_size = 2;               // frames per frame group
  int64_t merge_size = 2;                        // patches per block edge
  std::array<double, 3> mean = {0.5, 0.5, 0.5};  // of values scaled to 0..1
  std::array<double, 3> std = {0.5, 0.5, 0.5};

  int64_t factor() const { return patch_size * merge_size; }  // edges are multiples of it
  int64_t row_size() const { return 3 * temporal_patch_size * patch_size * patch_size; }
};

class KEYSEAT_API PatchCutter {
 public:
  // Throws Error C3 unless all sizes are >= 1 and std is positive.
  explicit PatchCutter(const PatchFormat& format);

  const PatchFormat& format() const { return format_; }

  // Grid of `frames` images of one size, 1 for an image. Throws Error C3 unless the edges are
  // multiples of format().factor() (smart_resize makes them so) and frames >= 1.
  PatchGrid grid(int64_t height, int64_t width, int64_t frames = 1) const;

  // Writes grid().patches() rows for one image, repeated over the frame group, or for the frames of
  // a video, the last one repeated until the last group is full. value = (byte - 255 mean) / (255
  // std) in float32. Fault: frame_sizes. `rows` has exactly grid().patches() * format().row_size()
  // floats.
  Outcome<PatchGrid> cut(std::span<const Image> frames, std::span<float> rows) const;

  // The other way round, for people to look at: frame `frame` out of the grid.t * temporal frames
  // of a visual whose rows begin at `rows`; values are rounded to bytes. Exact where cut() made
  // them.
  Image restore(std::span<const float> rows, const PatchGrid& grid, int64_t frame) const;

 private:
  // Calls visit(t, patch row, patch column) for every row, in the order of rows.
  template <typename Visit>
  void for_each_patch(const PatchGrid& grid, const Visit& visit) const;
  void cut_patch(const Image& frame, int64_t top, int64_t left, float* row_of_frame) const;

  PatchFormat format_;
  std::array<std::array<float, 256>, 3> value_of_byte_;  // per channel
};

}  // namespace keyseat::data
