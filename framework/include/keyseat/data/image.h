// Decoding of JPEG, PNG and WebP files to RGB, with the results of Pillow's exif_transpose +
// convert("RGB").
//
// The rules: EXIF (or else XMP) orientation is applied first; alpha is dropped; a palette's
// transparent entry is ignored; gray is repeated; CMYK is stored inverted (Adobe's
// convention), R = K - (255 - C) * K / 255 on the stored values; 16-bit channels keep their high
// byte, except plain 16-bit gray, which saturates at 255; of an animation the first frame counts.
// PNG and lossless WebP are exact; JPEG uses the accurate integer DCT and smooth chroma upsampling.
//
// Formats are told apart by content, never by file name. Nothing here throws for a bad file. No
// torch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keyseat/data/fault.h"
#include "keyseat/export.h"

namespace keyseat::data {

struct Image {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3], row-major, no padding
};

enum class ImageFormat { kJpeg, kPng, kWebp };

// What the header tells, without decoding: enough to index a data set.
struct ImageHeader {
  ImageFormat format = ImageFormat::kPng;
  int64_t stored_height = 0;  // as in the file, before the orientation is applied
  int64_t stored_width = 0;
  int orientation = 1;  // EXIF: 1 to 8

  bool swaps_edges() const { return orientation >= 5; }
  int64_t height() const { return swaps_edges() ? stored_width : stored_height; }
  int64_t width() const { return swaps_edges() ? stored_height : stored_width; }
};

// Checked against the header before anything of the image's size is allocated.
struct ImageLimits {
  int64_t max_file_bytes = 256 << 20;
  int64_t max_pixels = 64 << 20;  // four times the upper bound of the published Qwen3-VL processor
  int64_t max_edge = 65535;
};

// Reads the header and checks the limits. Faults: empty_file, file_too_large, unknown_format,
// unsupported_format, truncated, corrupt, too_many_pixels, edge_too_long.
KEYSEAT_API Outcome<ImageHeader> read_image_header(std::span<const uint8_t> file,
                                                   const ImageLimits& limits = {});

// Decodes a whole file held in memory. Faults: those of read_image_header and out_of_memory. Data
// that a decoder would only warn of (a cut or damaged JPEG scan) is a fault, too: gray blocks must
// not reach training.
KEYSEAT_API Outcome<Image> decode_image(std::span<const uint8_t> file,
                                        const ImageLimits& limits = {});

// The image as a PNG file. Throws R3 where memory runs out.
KEYSEAT_API std::vector<uint8_t> encode_png(const Image& image);

// The same as decode_image() for a file on disk, whose size is checked before it is read. Further
// fault: unreadable_file.
KEYSEAT_API Outcome<Image> decode_image_file(const std::string& path,
                                             const ImageLimits& limits = {});

}  // namespace keyseat::data
