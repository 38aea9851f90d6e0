#include "keyseat/data/resize.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <thread>

#include "image_fixture.h"

namespace keyseat::data {
namespace {

std::vector<std::string> split_commas(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == ',') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

TEST_CASE("smart_resize: the 200 recorded rows") {
  std::ifstream stream("tests/fixtures/smart_resize.csv");
  std::string line;
  std::getline(stream, line);
  CHECK(line == "height,width,factor,min_pixels,max_pixels,resized_height,resized_width,error");
  int rows = 0;
  while (std::getline(stream, line)) {
    CAPTURE(line);
    const std::vector<std::string> fields = split_commas(line);
    REQUIRE(fields.size() == 8);
    const auto number = [&](size_t i) { return std::stoll(fields[i]); };
    const Outcome<ImageSize> result =
        smart_resize({number(0), number(1)},
                     {.factor = number(2), .min_pixels = number(3), .max_pixels = number(4)});
    if (fields[7].empty()) {
      REQUIRE(result.ok());
      CHECK(result.value() == ImageSize{number(5), number(6)});
    } else {
      REQUIRE(!result.ok());
      CHECK(fault_name(result.fault().kind) == fields[7]);
    }
    ++rows;
  }
  CHECK(rows == 200);
}

// Frames, height, width, temporal, factor, min and max pixels, and the height and width that
// smart_resize of transformers' Qwen3VLVideoProcessor gives; 0 where it refuses the ratio.
TEST_CASE("smart_resize_video: as Qwen3-VL's video processor") {
  const int64_t rows[][9] = {
      {8, 64, 96, 2, 32, 1024, 65536, 64, 96},
      {6, 64, 64, 2, 32, 1024, 65536, 64, 64},
      {2, 480, 640, 2, 32, 4096, 25165824, 480, 640},
      {64, 1080, 1920, 2, 32, 4096, 25165824, 448, 832},  // the budget is for all frames
      {768, 360, 640, 2, 32, 4096, 25165824, 128, 224},
      {3, 100, 75, 2, 32, 1024, 65536, 96, 64},
      {5, 100, 75, 2, 32, 1024, 30000, 96, 64},      // 2.5 groups count as 2: half to even
      {4, 20, 500, 2, 32, 4096, 25165824, 32, 800},  // small edges are scaled up first
      {2, 10, 10, 2, 32, 65536, 1000000, 192, 192},
      {7, 33, 47, 2, 16, 1024, 100000, 32, 48},
      {2, 8, 1700, 2, 32, 4096, 1000000, 0, 0},
  };
  for (const auto& row : rows) {
    CAPTURE(row[0]);
    CAPTURE(row[1]);
    CAPTURE(row[2]);
    const auto size =
        smart_resize_video({row[1], row[2]}, row[0], row[3], {row[4], row[5], row[6]});
    REQUIRE(size.ok() == (row[7] > 0));
    if (size.ok()) CHECK(size.value() == ImageSize{row[7], row[8]});
    if (!size.ok()) CHECK(size.fault().kind == FaultKind::kAspectRatio);
  }
  CHECK_THROWS_AS(smart_resize_video({64, 64}, 1, 2, {32, 1024, 65536}), Error);
}

TEST_CASE("smart_resize: settings that make no sense are errors") {
  CHECK_THROWS_AS(smart_resize({10, 10}, {.factor = 0, .min_pixels = 1, .max_pixels = 1}), Error);
  CHECK_THROWS_AS(smart_resize({10, 10}, {.factor = 32, .min_pixels = 0, .max_pixels = 1}), Error);
  CHECK_THROWS_AS(smart_resize({10, 10}, {.factor = 32, .min_pixels = 2, .max_pixels = 1}), Error);
  CHECK_THROWS_AS(smart_resize({0, 10}, {.factor = 32, .min_pixels = 1, .max_pixels = 1}), Error);
}

TEST_CASE("resize_bicubic: bit for bit as recorded, from the recorded decode") {
  int images = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fixtures/images")) {
    if (entry.path().extension() != ".safetensors") continue;
    CAPTURE(entry.path().string());
    const auto tensors = open_tensors(entry.path());
    const Image expected = recorded_image(tensors, "resized_rgb");
    const Image resized =
        resize_bicubic(recorded_image(tensors, "decoded_rgb"), {expected.height, expected.width});
    CHECK(resized.rgb == expected.rgb);
    ++images;
  }
  CHECK(images == 14);
}

TEST_CASE("resize_bicubic: loader threads agree, and the thread settings of others stay") {
  const Image image =
      recorded_image(open_tensors("tests/fixtures/images/photo_420.safetensors"), "decoded_rgb");
  const int threads_before = at::get_num_threads();
  const Image expected = resize_bicubic(image, {320, 448});
  std::vector<Image> results(4);
  int threads_inside = 0;
  {
    std::vector<std::jthread> loaders;
    for (Image& result : results) {
      loaders.emplace_back([&] { result = resize_bicubic(image, {320, 448}); });
    }
  }
  std::jthread([&] { threads_inside = at::get_num_threads(); }).join();
  for (const Image& result : results) CHECK(result.rgb == expected.rgb);
  CHECK(at::get_num_threads() == threads_before);
  CHECK(threads_inside == threads_before);
}

TEST_CASE("resize_bicubic: one pixel, one row, one column") {
  const Image pixel{1, 1, {10, 20, 30}};
  const Image grown = resize_bicubic(pixel, {32, 32});
  for (size_t i = 0; i < grown.rgb.size(); ++i) REQUIRE(grown.rgb[i] == pixel.rgb[i % 3]);
  CHECK(resize_bicubic(Image{1, 4, std::vector<uint8_t>(12, 7)}, {32, 32}).rgb ==
        std::vector<uint8_t>(3072, 7));
  CHECK(resize_bicubic(Image{4, 1, std::vector<uint8_t>(12, 7)}, {32, 32}).rgb ==
        std::vector<uint8_t>(3072, 7));
}

}  // namespace
}  // namespace keyseat::data
