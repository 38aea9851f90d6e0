#include "keyseat/data/image.h"

#include <algorithm>
#include <filesystem>
#include <random>

#include "image_fixture.h"

namespace keyseat::data {
namespace {

int largest_difference(const Image& a, const Image& b) {
  REQUIRE(a.height == b.height);
  REQUIRE(a.width == b.width);
  int largest = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i)
    largest = std::max(largest, std::abs(a.rgb[i] - b.rgb[i]));
  return largest;
}

// JPEG decoders of other libjpeg-turbo versions may round differently by one, as may lossy WebP.
int allowed_difference(const std::string& name) {
  const bool lossy = name.ends_with(".jpg") || name.find("lossy.webp") != name.npos;
  return lossy ? 1 : 0;
}

std::string fault_of(std::span<const uint8_t> file, const ImageLimits& limits = {}) {
  const Outcome<Image> result = decode_image(file, limits);
  return result ? "none" : fault_name(result.fault().kind);
}

void put_big_endian_32(std::vector<uint8_t>& bytes, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

constexpr const char* kImages = "tests/fixtures/images/";
constexpr const char* kDecode = "tests/fixtures/decode/";

TEST_CASE("images: the reference files decode as recorded") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kImages)) {
    const std::string extension = entry.path().extension();
    if (extension != ".jpg" && extension != ".png") continue;
    const std::string name = entry.path().filename();
    CAPTURE(name);
    const auto tensors = open_tensors(kImages + entry.path().stem().string() + ".safetensors");
    const Outcome<Image> decoded = decode_image_file(entry.path());
    REQUIRE(decoded.ok());
    CHECK(largest_difference(decoded.value(), recorded_image(tensors, "decoded_rgb")) <=
          allowed_difference(name));
    ++files;
  }
  CHECK(files == 13);
}

TEST_CASE("images: every colour type, orientation and container rule follows Pillow") {
  const auto expected = open_tensors(std::string(kDecode) + "decoded.safetensors");
  CHECK(expected.names().size() == 58);
  for (const std::string& name : expected.names()) {
    CAPTURE(name);
    const std::vector<uint8_t> file = read_bytes(kDecode + name);
    const Outcome<Image> decoded = decode_image(file);
    REQUIRE(decoded.ok());
    CHECK(largest_difference(decoded.value(), recorded_image(expected, name)) <=
          allowed_difference(name));
    const Outcome<ImageHeader> header = read_image_header(file);
    REQUIRE(header.ok());
    CHECK(header.value().height() == decoded.value().height);
    CHECK(header.value().width() == decoded.value().width);
  }
}

TEST_CASE("images: the format is told by content, not by name") {
  const std::string path = std::filesystem::temp_directory_path() / "keyseat_image_test.gif";
  std::filesystem::copy_file(std::string(kImages) + "photo_444.jpg", path,
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(decode_image_file(path).ok());
  std::filesystem::remove(path);
}

TEST_CASE("images: what is not an image is refused by name") {
  const auto as_file = [](std::string_view text) {
    return std::vector<uint8_t>(text.begin(), text.end());
  };
  CHECK(fault_of({}) == "empty_file");
  CHECK(fault_of(as_file("GIF89a\x01\x02")) == "unsupported_format");
  CHECK(fault_of(as_file("BM....")) == "unsupported_format");
  CHECK(fault_of(as_file("hello")) == "unknown_format");
  CHECK(fault_of(as_file("R")) == "unknown_format");
  CHECK(fault_of(as_file("RIFF\x04\x00")) == "unknown_format");
  CHECK(fault_of(std::vector<uint8_t>(4096, 0)) == "unknown_format");
  CHECK(fault_name(decode_image_file("tests/fixtures/no_such_file.png").fault().kind) ==
        std::string("unreadable_file"));
  CHECK(fault_name(decode_image_file("tests/fixtures").fault().kind) ==
        std::string("unreadable_file"));

  const Problem problem =
      Fault{FaultKind::kEmptyFile, "the file has no bytes"}.problem("shard.tar:000123.png");
  CHECK(problem.code == Code::kR6Data);
  CHECK(problem.where.file == "shard.tar:000123.png");
  CHECK(problem.what == "empty_file: the file has no bytes");
}

TEST_CASE("images: a file cut at any place is a fault, mostly `truncated`") {
  for (const char* name :
       {"interlaced.png", "palette_4bit.png", "progressive.jpg", "subsampled_422.jpg", "cmyk.jpg",
        "alpha_lossless.webp", "alpha_lossy.webp", "animation.webp"}) {
    const std::vector<uint8_t> file = read_bytes(kDecode + std::string(name));
    for (size_t size = 12; size < file.size(); ++size) {
      CAPTURE(name);
      CAPTURE(size);
      REQUIRE(fault_of(std::span(file).first(size)) == "truncated");
    }
  }
}

TEST_CASE("images: damaged bytes never crash, and a damaged PNG checksum is a fault") {
  std::vector<uint8_t> checksum = read_bytes(std::string(kDecode) + "interlaced.png");
  checksum[checksum.size() - 14] ^= 1;  // in the checksum of the last IDAT chunk
  CHECK(fault_of(checksum) == "corrupt");

  std::mt19937 random(1);
  ImageLimits limits;
  limits.max_pixels = 1 << 20;
  for (const auto& entry : std::filesystem::directory_iterator(kDecode)) {
    if (entry.path().extension() == ".safetensors") continue;
    const std::vector<uint8_t> file = read_bytes(entry.path());
    for (int round = 0; round < 50; ++round) {
      std::vector<uint8_t> damaged = file;
      for (int i = 0; i < 3; ++i)
        damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
      const Outcome<Image> result = decode_image(damaged, limits);
      if (result.ok())
        CHECK(result.value().rgb.size() == 3u * result.value().height * result.value().width);
    }
  }
}

TEST_CASE("images: a PNG that was written is read as it was") {
  Image image{3, 5, {}};
  for (int i = 0; i < 45; ++i) image.rgb.push_back(static_cast<uint8_t>(5 * i));
  const Outcome<Image> again = decode_image(encode_png(image));
  REQUIRE(again.ok());
  CHECK(again.value().width == 5);
  CHECK(again.value().rgb == image.rgb);
}

TEST_CASE("images: limits are checked against the header, before anything is allocated") {
  std::vector<uint8_t> bomb = read_bytes(std::string(kDecode) + "one_pixel.png");
  put_big_endian_32(bomb, 16, 60000);  // width and height of the PNG header: 10 GB of pixels
  put_big_endian_32(bomb, 20, 60000);
  CHECK(fault_of(bomb) == "too_many_pixels");
  put_big_endian_32(bomb, 16, 2000000000);
  CHECK(fault_of(bomb) == "edge_too_long");
  put_big_endian_32(bomb, 16, 0xFFFFFFFF);
  CHECK(fault_of(bomb) == "corrupt");
  put_big_endian_32(bomb, 16, 0);
  CHECK(fault_of(bomb) == "corrupt");

  std::vector<uint8_t> jpeg = read_bytes(std::string(kDecode) + "gray.jpg");
  const auto frame =
      std::search(jpeg.begin(), jpeg.end(), std::begin("\xFF\xC0"), std::begin("\xFF\xC0") + 2,
                  [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); });
  REQUIRE(frame != jpeg.end());
  std::fill_n(frame + 5, 4, uint8_t{0xEA});  // 60138 x 60138
  CHECK(fault_of(jpeg) == "too_many_pixels");

  const std::vector<uint8_t> file =
      read_bytes(std::string(kImages) + "photo_420.jpg");  // 150 x 200
  ImageLimits limits;
  limits.max_pixels = 150 * 200;
  limits.max_edge = 200;
  limits.max_file_bytes = static_cast<int64_t>(file.size());
  CHECK(fault_of(file, limits) == "none");
  limits.max_pixels -= 1;
  CHECK(fault_of(file, limits) == "too_many_pixels");
  limits.max_edge = 199;
  CHECK(fault_of(file, limits) == "edge_too_long");
  limits.max_file_bytes -= 1;
  CHECK(fault_of(file, limits) == "file_too_large");
  CHECK(
      fault_name(decode_image_file(std::string(kImages) + "photo_420.jpg", limits).fault().kind) ==
      std::string("file_too_large"));
}

}  // namespace
}  // namespace keyseat::data
