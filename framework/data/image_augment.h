// What may be done to a decoded image before it is resized.
#pragma once

#include <cstdint>
#include <utility>

#include "keyseat/data/image.h"

namespace keyseat::data {

// (down, right), each in [-most, most], a function of its arguments only.
std::pair<int64_t, int64_t> augmentation_shift(int64_t seed, int64_t sample, int64_t pass,
                                               int64_t image, int64_t most);

// Moves the content by whole pixels; uncovered pixels repeat the edge.
Image shifted(const Image& image, std::pair<int64_t, int64_t> down_right);

// A gray image of the same size: no information but the size is left.
Image blank(const Image& image);

}  // namespace keyseat::data
