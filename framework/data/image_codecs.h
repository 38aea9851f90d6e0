// The three decoders behind keyseat/data/image.h, and the metadata they share.
//
// A codec has two halves: its header reader walks the container itself and never allocates by what
// the file claims; its pixel decoder runs only after the limits were checked, and writes exactly
// header.stored_height * stored_width * 3 bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "keyseat/data/image.h"

namespace keyseat::data {

using Bytes = std::span<const uint8_t>;

inline uint32_t big_endian_16(Bytes bytes, size_t at) {
  return uint32_t{bytes[at]} << 8 | bytes[at + 1];
}
inline uint32_t big_endian_32(Bytes bytes, size_t at) {
  return big_endian_16(bytes, at) << 16 | big_endian_16(bytes, at + 2);
}
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// image_exif.cpp. The orientation entry of a TIFF structure (an "Exif\0\0" prefix is skipped),
// whatever its value; none if there is no such entry or the structure is damaged, which is not a
// reason to refuse the pixels.
std::optional<int> exif_orientation(Bytes exif);
std::optional<int> xmp_orientation(Bytes xmp);
// EXIF wins over XMP; anything outside 1..8 means 1.
int effective_orientation(std::optional<int> from_exif, std::optional<int> from_xmp);
// Rearranges the stored image into the displayed one.
Image apply_orientation(Image stored, int orientation);

// Each returns no fault on success. `rgb` has room for the stored image.
Outcome<ImageHeader> read_jpeg_header(Bytes file);
std::optional<Fault> decode_jpeg(Bytes file, const ImageHeader& header, std::span<uint8_t> rgb);

Outcome<ImageHeader> read_png_header(Bytes file);
std::optional<Fault> decode_png(Bytes file, const ImageHeader& header, std::span<uint8_t> rgb);

Outcome<ImageHeader> read_webp_header(Bytes file);
std::optional<Fault> decode_webp(Bytes file, const ImageHeader& header, std::span<uint8_t> rgb);

}  // namespace keyseat::data
