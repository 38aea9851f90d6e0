#include "keyseat/data/patches.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "require.h"

namespace keyseat::data {

PatchCutter::PatchCutter(const PatchFormat& format) : format_(format) {
  require(format.patch_size >= 1 && format.temporal_patch_size >= 1 && format.merge_size >= 1,
          "patch_size, temporal_patch_size and merge_size must be at least 1");
  for (size_t channel = 0; channel < 3; ++channel) {
    require(format.std[channel] > 0,
            "image_std must be positive, it is " + std::to_string(format.std[channel]));
    // The rounding steps of the reference: scale mean and std to bytes, then subtract and divide,
    // all in float32.
    const float mean = static_cast<float>(format.mean[channel]) * 255.0f;
    const float std = static_cast<float>(format.std[channel]) * 255.0f;
    for (int byte = 0; byte < 256; ++byte) {
      value_of_byte_[channel][static_cast<size_t>(byte)] = (static_cast<float>(byte) - mean) / std;
    }
  }
}

PatchGrid PatchCutter::grid(int64_t height, int64_t width, int64_t frames) const {
  const int64_t factor = format_.factor();
  require(height >= factor && width >= factor && height % factor == 0 && width % factor == 0,
          "an image of " + std::to_string(height) + " x " + std::to_string(width) +
              " pixels cannot be cut: edges must be multiples of patch_size * merge_size = " +
              std::to_string(factor));
  require(frames >= 1, "a video needs at least one frame");
  const int64_t group = format_.temporal_patch_size;
  return {(frames + group - 1) / group, height / format_.patch_size, width / format_.patch_size};
}

template <typename Visit>
void PatchCutter::for_each_patch(const PatchGrid& grid, const Visit& visit) const {
  const int64_t merge = format_.merge_size;
  for (int64_t t = 0; t < grid.t; ++t) {
    for (int64_t block_y = 0; block_y < grid.h; block_y += merge) {
      for (int64_t block_x = 0; block_x < grid.w; block_x += merge) {
        for (int64_t y = 0; y < merge; ++y) {
          for (int64_t x = 0; x < merge; ++x) visit(t, block_y + y, block_x + x);
        }
      }
    }
  }
}

// One frame of one patch: its three channels lie temporal * patch * patch floats apart.
void PatchCutter::cut_patch(const Image& frame, int64_t top, int64_t left,
                            float* row_of_frame) const {
  const int64_t edge = format_.patch_size;
  const int64_t channel_stride = format_.temporal_patch_size * edge * edge;
  const float* red_value = value_of_byte_[0].data();
  const float* green_value = value_of_byte_[1].data();
  const float* blue_value = value_of_byte_[2].data();
  for (int64_t y = 0; y < edge; ++y) {
    const uint8_t* in = frame.rgb.data() + 3 * ((top + y) * frame.width + left);
    float* red = row_of_frame + y * edge;
    float* green = red + channel_stride;
    float* blue = green + channel_stride;
    for (int64_t x = 0; x < edge; ++x) {
      red[x] = red_value[in[3 * x]];
      green[x] = green_value[in[3 * x + 1]];
      blue[x] = blue_value[in[3 * x + 2]];
    }
  }
}

Outcome<PatchGrid> PatchCutter::cut(std::span<const Image> frames, std::span<float> rows) const {
  if (frames.empty()) return Fault{FaultKind::kFrameSizes, "a video without frames"};
  for (const Image& frame : frames) {
    if (frame.height == frames[0].height && frame.width == frames[0].width) continue;
    return Fault{FaultKind::kFrameSizes, "frames of " + std::to_string(frames[0].height) + " x " +
                                             std::to_string(frames[0].width) + " and " +
                                             std::to_string(frame.height) + " x " +
                                             std::to_string(frame.width) + " pixels in one video"};
  }
  const PatchGrid shape =
      grid(frames[0].height, frames[0].width, static_cast<int64_t>(frames.size()));
  require(static_cast<int64_t>(rows.size()) == shape.patches() * format_.row_size(),
          "room for " + std::to_string(rows.size()) + " patch values, but there are " +
              std::to_string(shape.patches() * format_.row_size()));

  const int64_t edge = format_.patch_size, group = format_.temporal_patch_size;
  const int64_t area = edge * edge, last_frame = static_cast<int64_t>(frames.size()) - 1;
  float* row = rows.data();
  const auto write_row = [&](int64_t t, int64_t patch_y, int64_t patch_x) {
    for (int64_t f = 0; f < group; ++f) {
      const int64_t frame = t * group + f;
      if (f > 0 && frame > last_frame) {  // a repeated frame: copy instead of converting again
        for (int64_t channel = 0; channel < 3; ++channel) {
          float* to = row + (channel * group + f) * area;
          std::memcpy(to, to - area, static_cast<size_t>(area) * sizeof(float));
        }
      } else {
        cut_patch(frames[static_cast<size_t>(frame)], patch_y * edge, patch_x * edge,
                  row + f * area);
      }
    }
    row += format_.row_size();
  };
  for_each_patch(shape, write_row);
  return shape;
}

Image PatchCutter::restore(std::span<const float> rows, const PatchGrid& grid,
                           int64_t frame) const {
  const int64_t edge = format_.patch_size, area = edge * edge, group = format_.temporal_patch_size;
  require(static_cast<int64_t>(rows.size()) == grid.patches() * format_.row_size() && frame >= 0 &&
              frame < grid.t * group,
          "no frame " + std::to_string(frame) + " among these patches");
  Image image{grid.h * edge, grid.w * edge, {}};
  image.rgb.resize(static_cast<size_t>(3 * image.height * image.width));
  const float* row = rows.data();
  for_each_patch(grid, [&](int64_t t, int64_t patch_y, int64_t patch_x) {
    const float* values = row;
    row += format_.row_size();
    if (t != frame / group) return;
    for (int64_t channel = 0; channel < 3; ++channel) {
      const auto mean = 255.0 * format_.mean[static_cast<size_t>(channel)];
      const auto std = 255.0 * format_.std[static_cast<size_t>(channel)];
      const float* from = values + (channel * group + frame % group) * area;
      for (int64_t i = 0; i < area; ++i) {
        const int64_t y = patch_y * edge + i / edge, x = patch_x * edge + i % edge;
        const double byte = std::clamp(std::round(from[i] * std + mean), 0.0, 255.0);
        image.rgb[static_cast<size_t>(3 * (y * image.width + x) + channel)] =
            static_cast<uint8_t>(byte);
      }
    }
  });
  return image;
}

}  // namespace keyseat::data
