#include "keyseat/data/resize.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/from_blob.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "require.h"

namespace keyseat::data {

namespace {

constexpr double kMaxAspectRatio = 200.0;

// Operators called while it lives stay on this thread. The OpenMP setting belongs to the thread;
// at::set_num_threads would also change what threads started later begin with.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// [1, 3, height, width] over interleaved bytes (channels last), without a copy.
at::Tensor as_tensor_1CHW(const Image& image) {
  const int64_t area = image.height * image.width;
  return at::from_blob(const_cast<uint8_t*>(image.rgb.data()), {1, 3, image.height, image.width},
                       {3 * area, 1, 3 * image.width, 3}, at::TensorOptions(at::kByte));
}

void require_sensible(ImageSize size, const ResizeBounds& bounds) {
  require(bounds.factor >= 1 && bounds.min_pixels >= 1 && bounds.max_pixels >= bounds.min_pixels,
          "image bounds: factor " + std::to_string(bounds.factor) + ", min_pixels " +
              std::to_string(bounds.min_pixels) + ", max_pixels " +
              std::to_string(bounds.max_pixels) +
              "; needed: factor >= 1 and 1 <= min_pixels <= max_pixels");
  require(size.height >= 1 && size.width >= 1,
          "an image with an edge of 0 pixels cannot be resized");
}

// Both edges rounded to the factor, then scaled together if `count` images of that size leave the
// bounds; `exact_count` of them are what the scale is computed with.
Outcome<ImageSize> fit(ImageSize size, double count, double exact_count,
                       const ResizeBounds& bounds) {
  const double height = static_cast<double>(size.height), width = static_cast<double>(size.width);
  const double ratio = std::max(height, width) / std::min(height, width);
  if (ratio > kMaxAspectRatio) {
    return Fault{FaultKind::kAspectRatio, std::to_string(size.height) + " x " +
                                              std::to_string(size.width) +
                                              " pixels (height x width) have a ratio above 200"};
  }
  const double factor = static_cast<double>(bounds.factor);
  // nearbyint rounds half to even in the default rounding mode, as Python's round does.
  ImageSize result{static_cast<int64_t>(std::nearbyint(height / factor)) * bounds.factor,
                   static_cast<int64_t>(std::nearbyint(width / factor)) * bounds.factor};
  const double area = count * static_cast<double>(result.height * result.width);
  const double exact_area = exact_count * height * width;
  if (area > static_cast<double>(bounds.max_pixels)) {
    const double shrink = std::sqrt(exact_area / static_cast<double>(bounds.max_pixels));
    const auto edge = [&](double length) {
      return std::max(bounds.factor,
                      static_cast<int64_t>(std::floor(length / shrink / factor)) * bounds.factor);
    };
    result = {edge(height), edge(width)};
  } else if (area < static_cast<double>(bounds.min_pixels)) {
    const double grow = std::sqrt(static_cast<double>(bounds.min_pixels) / exact_area);
    const auto edge = [&](double length) {
      return static_cast<int64_t>(std::ceil(length * grow / factor)) * bounds.factor;
    };
    result = {edge(height), edge(width)};
  }
  return result;
}

}  // namespace

Outcome<ImageSize> smart_resize(ImageSize size, const ResizeBounds& bounds) {
  require_sensible(size, bounds);
  return fit(size, 1, 1, bounds);
}

Outcome<ImageSize> smart_resize_video(ImageSize size, int64_t frames, int64_t temporal,
                                      const ResizeBounds& bounds) {
  require_sensible(size, bounds);
  require(temporal >= 1 && frames >= temporal, "a video of " + std::to_string(frames) +
                                                   " frames does not fill a group of " +
                                                   std::to_string(temporal));
  if (size.height < bounds.factor || size.width < bounds.factor) {
    const double factor = static_cast<double>(bounds.factor);
    const double scale = std::max(factor / static_cast<double>(size.height),
                                  factor / static_cast<double>(size.width));
    size = {static_cast<int64_t>(static_cast<double>(size.height) * scale),
            static_cast<int64_t>(static_cast<double>(size.width) * scale)};
  }
  const double group = static_cast<double>(temporal), exact = static_cast<double>(frames);
  return fit(size, std::nearbyint(exact / group) * group, exact, bounds);
}

Image resize_bicubic(const Image& image, ImageSize size) {
  if (size == ImageSize{image.height, image.width}) return image;
  Image resized{size.height, size.width, {}};
  resized.rgb.resize(static_cast<size_t>(3 * size.height * size.width));
  const OneThread one_thread;
  at::Tensor out_1CHW = as_tensor_1CHW(resized);
  at::_upsample_bicubic2d_aa_out(out_1CHW, as_tensor_1CHW(image), {size.height, size.width},
                                 /*align_corners=*/false);
  return resized;
}

}  // namespace keyseat::data
