#include "data/image_augment.h"

#include <algorithm>
#include <cstring>

namespace keyseat::data {

namespace {

uint64_t hashed(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdull;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ull;
  return value ^ (value >> 33);
}

}  // namespace

std::pair<int64_t, int64_t> augmentation_shift(int64_t seed, int64_t sample, int64_t pass,
                                               int64_t image, int64_t most) {
  uint64_t state = 0x243f6a8885a308d3ull;
  for (int64_t part : {seed, sample, pass, image})
    state = hashed(state ^ static_cast<uint64_t>(part)) + 0x9e3779b97f4a7c15ull;
  const auto choices = static_cast<uint64_t>(2 * most + 1);
  const auto down = static_cast<int64_t>(state % choices) - most;
  const auto right = static_cast<int64_t>(state / choices % choices) - most;
  return {down, right};
}

Image shifted(const Image& image, std::pair<int64_t, int64_t> down_right) {
  Image out;
  out.height = image.height;
  out.width = image.width;
  out.rgb.resize(image.rgb.size());
  for (int64_t y = 0; y < image.height; ++y) {
    const int64_t from_y = std::clamp<int64_t>(y - down_right.first, 0, image.height - 1);
    for (int64_t x = 0; x < image.width; ++x) {
      const int64_t from_x = std::clamp<int64_t>(x - down_right.second, 0, image.width - 1);
      std::memcpy(&out.rgb[3 * (y * image.width + x)],
                  &image.rgb[3 * (from_y * image.width + from_x)], 3);
    }
  }
  return out;
}

Image blank(const Image& image) {
  Image out = image;
  std::fill(out.rgb.begin(), out.rgb.end(), uint8_t{127});
  return out;
}

}  // namespace keyseat::data
