// The entry points of keyseat/data/image.h: tells formats apart, checks limits, decodes, turns.

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>

#include "image_codecs.h"

namespace keyseat::data {

namespace {

struct Signature {
  std::string_view bytes;
  size_t offset;
  const char* format;
};

// Formats that are recognised only to be refused by name.
constexpr std::array kRefused = {
    Signature{"GIF8", 0, "GIF"},
    Signature{"BM", 0, "BMP"},
    Signature{std::string_view("II*\0", 4), 0, "TIFF"},
    Signature{std::string_view("MM\0*", 4), 0, "TIFF"},
    Signature{"ftypavif", 4, "AVIF"},
    Signature{"ftypheic", 4, "HEIC"},
    Signature{"ftypmif1", 4, "HEIF"},
    Signature{std::string_view("\0\0\0\x0CjP  ", 8), 0, "JPEG 2000"},
    Signature{"\xFF\x0A", 0, "JPEG XL"},
    Signature{std::string_view("\0\0\0\x0CJXL ", 8), 0, "JPEG XL"},
    Signature{"%PDF", 0, "PDF"},
    Signature{"<svg", 0, "SVG"},
};

Outcome<ImageFormat> sniff(Bytes file) {
  if (file.empty()) return Fault{FaultKind::kEmptyFile, "the file has no bytes"};
  const std::string_view text = as_text(file);
  if (text.starts_with("\xFF\xD8\xFF")) return ImageFormat::kJpeg;
  if (text.starts_with("\x89PNG\r\n\x1A\n")) return ImageFormat::kPng;
  if (text.starts_with("RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP")
    return ImageFormat::kWebp;
  for (const Signature& refused : kRefused) {
    if (text.size() >= refused.offset && text.substr(refused.offset).starts_with(refused.bytes)) {
      return Fault{FaultKind::kUnsupportedFormat,
                   std::string(refused.format) + " images are not decoded"};
    }
  }
  std::string first_bytes;
  for (const uint8_t byte : file.first(std::min<size_t>(file.size(), 8))) {
    char hex[4];
    std::snprintf(hex, sizeof hex, " %02x", byte);
    first_bytes += hex;
  }
  return Fault{FaultKind::kUnknownFormat, "the file begins with" + first_bytes};
}

Outcome<ImageHeader> read_header(Bytes file) {
  Outcome<ImageFormat> format = sniff(file);
  if (!format) return format.fault();
  switch (format.value()) {
    case ImageFormat::kJpeg:
      return read_jpeg_header(file);
    case ImageFormat::kPng:
      return read_png_header(file);
    case ImageFormat::kWebp:
      return read_webp_header(file);
  }
  return Fault{FaultKind::kUnknownFormat, "no decoder"};
}

std::optional<Fault> decode_pixels(Bytes file, const ImageHeader& header, std::span<uint8_t> rgb) {
  switch (header.format) {
    case ImageFormat::kJpeg:
      return decode_jpeg(file, header, rgb);
    case ImageFormat::kPng:
      return decode_png(file, header, rgb);
    case ImageFormat::kWebp:
      return decode_webp(file, header, rgb);
  }
  return Fault{FaultKind::kUnknownFormat, "no decoder"};
}

std::optional<Fault> check_file_size(uintmax_t bytes, const ImageLimits& limits) {
  if (bytes <= static_cast<uintmax_t>(limits.max_file_bytes)) return {};
  return Fault{FaultKind::kFileTooLarge, std::to_string(bytes) + " bytes, the limit is " +
                                             std::to_string(limits.max_file_bytes)};
}

}  // namespace

Outcome<ImageHeader> read_image_header(Bytes file, const ImageLimits& limits) try {
  if (std::optional<Fault> fault = check_file_size(file.size(), limits)) return *fault;
  Outcome<ImageHeader> result = read_header(file);
  if (!result) return result;
  const int64_t height = result.value().stored_height, width = result.value().stored_width;
  const std::string size =
      std::to_string(height) + " x " + std::to_string(width) + " pixels (height x width)";
  if (std::max(height, width) > limits.max_edge) {
    return Fault{FaultKind::kEdgeTooLong,
                 size + ", the limit is " + std::to_string(limits.max_edge) + " per edge"};
  }
  if (height * width > limits.max_pixels) {  // both below 2^31, so the product fits
    return Fault{FaultKind::kTooManyPixels,
                 size + ", the limit is " + std::to_string(limits.max_pixels) + " pixels"};
  }
  return result;
} catch (const std::bad_alloc&) {
  return Fault{FaultKind::kOutOfMemory, "no memory to read the header"};
}

Outcome<Image> decode_image(Bytes file, const ImageLimits& limits) try {
  Outcome<ImageHeader> found = read_image_header(file, limits);
  if (!found) return found.fault();
  const ImageHeader& header = found.value();
  Image stored;
  stored.height = header.stored_height;
  stored.width = header.stored_width;
  stored.rgb.resize(static_cast<size_t>(3 * stored.height * stored.width));
  if (std::optional<Fault> fault = decode_pixels(file, header, stored.rgb)) return *fault;
  return apply_orientation(std::move(stored), header.orientation);
} catch (const std::bad_alloc&) {
  return Fault{FaultKind::kOutOfMemory, "no memory for the pixels"};
}

Outcome<Image> decode_image_file(const std::string& path, const ImageLimits& limits) try {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return Fault{FaultKind::kUnreadableFile, path + ": " + error.message()};
  if (std::optional<Fault> fault = check_file_size(size, limits)) return *fault;
  std::vector<uint8_t> bytes(size);
  std::ifstream stream(path, std::ios::binary);
  if (!stream ||
      !stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size))) {
    return Fault{FaultKind::kUnreadableFile, path + ": cannot be read"};
  }
  return decode_image(bytes, limits);
} catch (const std::bad_alloc&) {
  return Fault{FaultKind::kOutOfMemory, "no memory for the file"};
}

}  // namespace keyseat::data
