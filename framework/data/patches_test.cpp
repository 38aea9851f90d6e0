#include "keyseat/data/patches.h"

#include <cstring>
#include <filesystem>

#include "image_fixture.h"

namespace keyseat::data {
namespace {

// The documented order, written down naively: value (channel, frame, y, x) of the row at (t, block,
// inside the block).
float naive_value(const std::vector<Image>& frames, const PatchFormat& format,
                  const PatchGrid& grid, int64_t row, int64_t column) {
  const int64_t m = format.merge_size, p = format.patch_size;
  const int64_t in_block_x = row % m, in_block_y = row / m % m;
  const int64_t block_x = row / (m * m) % (grid.w / m), block_y = row / (m * grid.w) % (grid.h / m);
  const int64_t t = row / (grid.h * grid.w);
  const int64_t x = (block_x * m + in_block_x) * p + column % p;
  const int64_t y = (block_y * m + in_block_y) * p + column / p % p;
  const int64_t frame =
      t * format.temporal_patch_size + column / (p * p) % format.temporal_patch_size;
  const auto channel = static_cast<size_t>(column / (p * p * format.temporal_patch_size));
  const Image& image = frames[std::min<size_t>(static_cast<size_t>(frame), frames.size() - 1)];
  const auto byte =
      static_cast<float>(image.rgb[static_cast<size_t>((y * image.width + x) * 3) + channel]);
  const float mean = static_cast<float>(format.mean[channel]) * 255.0f;
  return (byte - mean) / (static_cast<float>(format.std[channel]) * 255.0f);
}

Image noise(int64_t height, int64_t width, uint32_t seed) {
  Image image{height, width, std::vector<uint8_t>(static_cast<size_t>(3 * height * width))};
  for (uint8_t& byte : image.rgb)
    byte = static_cast<uint8_t>((seed = seed * 1664525 + 1013904223) >> 24);
  return image;
}

void check_against_naive(const PatchFormat& format, const std::vector<Image>& frames) {
  const PatchCutter cutter(format);
  const PatchGrid grid =
      cutter.grid(frames[0].height, frames[0].width, static_cast<int64_t>(frames.size()));
  std::vector<float> rows(static_cast<size_t>(grid.patches() * format.row_size()), -1000.0f);
  const Outcome<PatchGrid> result = cutter.cut(frames, rows);
  REQUIRE(result.ok());
  CHECK(result.value() == grid);
  size_t at = 0;
  for (int64_t row = 0; row < grid.patches(); ++row) {
    for (int64_t column = 0; column < format.row_size(); ++column, ++at) {
      REQUIRE(rows[at] == naive_value(frames, format, grid, row, column));
    }
  }
}

TEST_CASE("patches: bit for bit as recorded, from the recorded resized images") {
  const PatchCutter cutter({});
  int images = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fixtures/images")) {
    if (entry.path().extension() != ".safetensors") continue;
    CAPTURE(entry.path().string());
    const auto tensors = open_tensors(entry.path());
    const Image resized = recorded_image(tensors, "resized_rgb");
    const at::Tensor expected_PD = tensors.tensor("pixel_values");
    const at::Tensor grid_13 = tensors.tensor("image_grid_thw");
    std::vector<float> rows(static_cast<size_t>(expected_PD.numel()));
    const Outcome<PatchGrid> result = cutter.cut(std::span(&resized, 1), rows);
    REQUIRE(result.ok());
    const auto* thw = static_cast<const int64_t*>(grid_13.const_data_ptr());
    CHECK(result.value() == PatchGrid{thw[0], thw[1], thw[2]});
    CHECK(expected_PD.size(0) == result.value().patches());
    CHECK(expected_PD.size(1) == cutter.format().row_size());
    CHECK(std::memcmp(rows.data(), expected_PD.const_data_ptr(), expected_PD.nbytes()) == 0);
    ++images;
  }
  CHECK(images == 14);
}

TEST_CASE("patches: what was cut is restored, frame by frame") {
  PatchFormat format;
  format.mean = {0.48, 0.46, 0.41};
  format.std = {0.27, 0.26, 0.28};
  format.patch_size = 4;
  const PatchCutter cutter(format);
  const std::vector<Image> frames = {noise(16, 24, 1), noise(16, 24, 2), noise(16, 24, 3)};
  const PatchGrid grid = cutter.grid(16, 24, 3);
  std::vector<float> rows(static_cast<size_t>(grid.patches() * format.row_size()));
  REQUIRE(cutter.cut(frames, rows).ok());
  for (int64_t frame = 0; frame < 4; ++frame) {
    const Image restored = cutter.restore(rows, grid, frame);
    CHECK(restored.height == 16);
    CHECK(restored.width == 24);
    CHECK(restored.rgb == frames[static_cast<size_t>(std::min<int64_t>(frame, 2))].rgb);
  }
  CHECK_THROWS_AS(cutter.restore(rows, grid, 4), Error);
}

TEST_CASE("patches: images and videos of other formats against the naive order") {
  PatchFormat format;
  format.mean = {0.48, 0.46, 0.41};
  format.std = {0.27, 0.26, 0.28};
  format.patch_size = 4;
  SUBCASE("an image") { check_against_naive(format, {noise(16, 24, 1)}); }
  SUBCASE("merge size 1") {
    format.merge_size = 1;
    check_against_naive(format, {noise(12, 8, 2)});
  }
  SUBCASE("merge size 3, one frame per group") {
    format.merge_size = 3;
    format.temporal_patch_size = 1;
    check_against_naive(format, {noise(24, 36, 3), noise(24, 36, 4)});
  }
  SUBCASE("a video of real frame pairs") {
    check_against_naive(format,
                        {noise(16, 8, 5), noise(16, 8, 6), noise(16, 8, 7), noise(16, 8, 8)});
  }
  SUBCASE("an odd number of frames repeats the last one") {
    check_against_naive(format, {noise(8, 16, 9), noise(8, 16, 10), noise(8, 16, 11)});
  }
  SUBCASE("three frames per group, four frames") {
    format.temporal_patch_size = 3;
    check_against_naive(format,
                        {noise(8, 8, 12), noise(8, 8, 13), noise(8, 8, 14), noise(8, 8, 15)});
  }
}

TEST_CASE("patches: what cannot be cut is named") {
  const PatchCutter cutter({});
  std::vector<float> rows(static_cast<size_t>(4 * cutter.format().row_size()));
  const std::vector<Image> unequal = {noise(32, 32, 1), noise(32, 64, 2)};
  CHECK(cutter.cut(unequal, rows).fault().kind == FaultKind::kFrameSizes);
  CHECK(cutter.cut({}, rows).fault().kind == FaultKind::kFrameSizes);
  CHECK_THROWS_AS(cutter.grid(33, 32), Error);
  CHECK_THROWS_AS(cutter.grid(0, 32), Error);
  CHECK_THROWS_AS(cutter.grid(32, 32, 0), Error);
  const Image image = noise(32, 32, 1);
  CHECK_THROWS_AS(cutter.cut(std::span(&image, 1), std::span(rows).first(5)), Error);
  PatchFormat flat;
  flat.std[1] = 0;
  CHECK_THROWS_AS(PatchCutter{flat}, Error);
  flat = {};
  flat.merge_size = 0;
  CHECK_THROWS_AS(PatchCutter{flat}, Error);
}

}  // namespace
}  // namespace keyseat::data
