// Sizes and resampling of the Qwen2-VL image processor, as transformers' torchvision backend
// computes them.
#pragma once

#include <cstdint>

#include "keyseat/data/fault.h"
#include "keyseat/data/image.h"
#include "keyseat/export.h"

namespace keyseat::data {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

struct ResizeBounds {
  int64_t factor = 32;  // both edges become multiples of it: patch size * merge size
  int64_t min_pixels = 0;
  int64_t max_pixels = 0;
};

// The size to which an image is resampled: both edges rounded to multiples of the factor (half to
// even), then scaled together if the area leaves the bounds. Fault: aspect_ratio if the longer edge
// is more than 200 times the shorter. Throws Error C3 unless factor >= 1, 1 <= min_pixels <=
// max_pixels; C3 too for an empty image.
KEYSEAT_API Outcome<ImageSize> smart_resize(ImageSize size, const ResizeBounds& bounds);

// The same for the frames of a video, as Qwen3-VL's video processor computes it: the bounds are for
// the pixels of all frames together, counted in whole frame groups of `temporal` frames. Small
// frames are first scaled up to one factor. Fault: aspect_ratio. C3 as above, and for frames <
// temporal.
KEYSEAT_API Outcome<ImageSize> smart_resize_video(ImageSize size, int64_t frames, int64_t temporal,
                                                  const ResizeBounds& bounds);

// Antialiased bicubic (a = -0.5) on bytes, bit for bit at::_upsample_bicubic2d_aa on a uint8
// tensor. Runs on the calling thread only, so that loader threads do not start OpenMP teams of
// their own. Both sizes must be positive.
KEYSEAT_API Image resize_bicubic(const Image& image, ImageSize size);

}  // namespace keyseat::data
