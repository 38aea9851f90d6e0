// PNG pixels through libpng.
//
// libpng reports errors by longjmp. Everything with a destructor therefore lives in decode_png,
// outside the two functions that call setjmp, and the callbacks hold only trivial objects.

#include <png.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "image_codecs.h"

namespace keyseat::data {

namespace {

struct Source {
  Bytes rest;
  bool ran_out = false;
  char message[160] = "";
};

void on_error(png_structp png, png_const_charp message) {
  auto* source = static_cast<Source*>(png_get_error_ptr(png));
  std::snprintf(source->message, sizeof source->message, "%s", message);
  png_longjmp(png, 1);
}

// What libpng only warns of is metadata (a colour profile it does not like) and does not touch the
// pixels.
void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep out, size_t count) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  if (count > source->rest.size()) {
    source->ran_out = true;
    png_error(png, "the data ends before the image does");
  }
  std::memcpy(out, source->rest.data(), count);
  source->rest = source->rest.subspan(count);
}

struct PngReader {
  explicit PngReader(Source& source)
      : png(png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, on_error, on_warning)) {
    if (png) info = png_create_info_struct(png);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png, info ? &info : nullptr, nullptr); }

  png_structp png = nullptr;
  png_infop info = nullptr;
};

// Metadata that would only cost time: the orientation was found by read_png_header, colours are
// taken as they are.
constexpr png_byte kIgnoredChunks[] = "iCCP\0sRGB\0gAMA\0cHRM\0eXIf\0tEXt\0zTXt\0iTXt\0tRNS\0bKGD";

bool read_info(PngReader& reader, Source& source, const ImageHeader& header) {
  if (setjmp(png_jmpbuf(reader.png))) return false;
  png_set_read_fn(reader.png, &source, on_read);
  png_set_user_limits(reader.png, static_cast<png_uint_32>(header.stored_width),
                      static_cast<png_uint_32>(header.stored_height));
  png_set_keep_unknown_chunks(reader.png, PNG_HANDLE_CHUNK_NEVER, kIgnoredChunks,
                              static_cast<int>(sizeof kIgnoredChunks / 5));
  png_read_info(reader.png, reader.info);
  return true;
}

// Fills `rows` with RGB bytes, or with 16-bit gray in this machine's (little-endian) order.
bool read_pixels(PngReader& reader, png_bytep* rows, size_t row_bytes, bool gray16) {
  if (setjmp(png_jmpbuf(reader.png))) return false;
  if (gray16) {
    png_set_swap(reader.png);
  } else {
    const int color = png_get_color_type(reader.png, reader.info);
    if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(reader.png);
    if (color == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(reader.png);
    png_set_strip_16(reader.png);
    png_set_strip_alpha(reader.png);
    png_set_gray_to_rgb(reader.png);
  }
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  if (png_get_rowbytes(reader.png, reader.info) != row_bytes) {
    png_error(reader.png, "unexpected bytes per row");
  }
  png_read_image(reader.png, rows);
  png_read_end(reader.png, nullptr);
  return true;
}

}  // namespace

std::optional<Fault> decode_png(Bytes file, const ImageHeader& header, std::span<uint8_t> rgb) {
  Source source{file};
  PngReader reader(source);
  if (!reader.png || !reader.info)
    return Fault{FaultKind::kOutOfMemory, "no memory for a PNG decoder"};
  const auto fault = [&] {
    return Fault{source.ran_out ? FaultKind::kTruncated : FaultKind::kCorrupt,
                 std::string("PNG decoder: ") + source.message};
  };
  if (!read_info(reader, source, header)) return fault();

  const bool gray16 = png_get_color_type(reader.png, reader.info) == PNG_COLOR_TYPE_GRAY &&
                      png_get_bit_depth(reader.png, reader.info) == 16;
  std::vector<uint16_t> gray;
  if (gray16) gray.resize(rgb.size() / 3);
  auto* pixels = gray16 ? reinterpret_cast<png_bytep>(gray.data()) : rgb.data();
  const size_t row_bytes = static_cast<size_t>(header.stored_width) * (gray16 ? 2 : 3);
  std::vector<png_bytep> rows(static_cast<size_t>(header.stored_height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = pixels + y * row_bytes;
  if (!read_pixels(reader, rows.data(), row_bytes, gray16)) return fault();

  // Pillow saturates 16-bit gray at 255 instead of scaling it; published pipelines saw such images
  // this way.
  for (size_t i = 0; i < gray.size(); ++i) {
    std::fill_n(&rgb[3 * i], 3, static_cast<uint8_t>(std::min<uint16_t>(gray[i], 255)));
  }
  return {};
}

}  // namespace keyseat::data
