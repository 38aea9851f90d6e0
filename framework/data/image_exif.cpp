// EXIF and XMP orientation: finding it, and rearranging pixels by it.

#include <cstring>

#include "image_codecs.h"

namespace keyseat::data {

namespace {

constexpr uint32_t kOrientationTag = 0x0112;

// Reads integers of a TIFF structure in its own byte order.
struct TiffReader {
  Bytes bytes;
  bool little_endian;

  bool holds(size_t at, size_t count) const {
    return at <= bytes.size() && count <= bytes.size() - at;
  }
  uint32_t u16(size_t at) const {
    return little_endian ? uint32_t{bytes[at + 1]} << 8 | bytes[at] : big_endian_16(bytes, at);
  }
  uint32_t u32(size_t at) const {
    return little_endian ? u16(at + 2) << 16 | u16(at) : big_endian_32(bytes, at);
  }
};

}  // namespace

std::optional<int> exif_orientation(Bytes exif) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  while (as_text(exif).starts_with(kPrefix)) exif = exif.subspan(kPrefix.size());

  const std::string_view text = as_text(exif);
  if (exif.size() < 8 || !(text.starts_with("II") || text.starts_with("MM"))) return {};
  const TiffReader tiff{exif, text[0] == 'I'};
  const size_t directory = tiff.u32(4);
  if (!tiff.holds(directory, 2)) return {};

  const size_t entries = tiff.u16(directory);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * i;  // tag, type, count, value
    if (!tiff.holds(entry, 12)) return {};
    if (tiff.u16(entry) != kOrientationTag) continue;
    const uint32_t type = tiff.u16(entry + 2);
    if (tiff.u32(entry + 4) != 1) return {};
    if (type == 3 || type == 8) return static_cast<int>(tiff.u16(entry + 8));  // (signed) short
    if (type == 4 || type == 9) return static_cast<int>(tiff.u32(entry + 8));  // (signed) long
    return {};
  }
  return {};
}

std::optional<int> xmp_orientation(Bytes xmp) {
  const std::string_view text = as_text(xmp);
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = text.find(kName); at != text.npos; at = text.find(kName, at + 1)) {
    std::string_view rest = text.substr(at + kName.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with(">")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return {};
}

int effective_orientation(std::optional<int> from_exif, std::optional<int> from_xmp) {
  const int value = from_exif.value_or(from_xmp.value_or(1));
  return value >= 1 && value <= 8 ? value : 1;
}

Image apply_orientation(Image stored, int orientation) {
  if (orientation == 1) return stored;
  const int64_t height = stored.height, width = stored.width;
  // The displayed pixel (y, x) is the stored byte at origin + y * down + x * right.
  const int64_t row = 3 * width, last_row = (height - 1) * row, last_column = 3 * (width - 1);
  int64_t origin = 0, down = row, right = 3;
  switch (orientation) {
    case 2:  // mirrored left to right
      origin = last_column, right = -3;
      break;
    case 3:  // half a turn
      origin = last_row + last_column, down = -row, right = -3;
      break;
    case 4:  // mirrored top to bottom
      origin = last_row, down = -row;
      break;
    case 5:  // transposed
      down = 3, right = row;
      break;
    case 6:  // a quarter turn clockwise
      origin = last_row, down = 3, right = -row;
      break;
    case 7:  // transposed along the other diagonal
      origin = last_row + last_column, down = -3, right = -row;
      break;
    case 8:  // a quarter turn counter-clockwise
      origin = last_column, down = -3, right = row;
      break;
  }
  Image shown;
  shown.height = orientation >= 5 ? width : height;
  shown.width = orientation >= 5 ? height : width;
  shown.rgb.resize(stored.rgb.size());
  uint8_t* out = shown.rgb.data();
  for (int64_t y = 0; y < shown.height; ++y) {
    const uint8_t* in = stored.rgb.data() + origin + y * down;
    for (int64_t x = 0; x < shown.width; ++x, out += 3) std::memcpy(out, in + x * right, 3);
  }
  return shown;
}

}  // namespace keyseat::data
