// The PNG container: size and orientation, found without inflating any pixel.

#include <zlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "image_codecs.h"

namespace keyseat::data {

namespace {

constexpr size_t kSignatureBytes = 8;
// Metadata is inflated only as far as an orientation can sensibly hide in it: 1 MiB against
// decompression bombs.
constexpr size_t kMaxMetadataBytes = 1 << 20;

std::vector<uint8_t> inflate_metadata(Bytes deflated) {
  std::vector<uint8_t> text(std::min(kMaxMetadataBytes, 64 * deflated.size() + 1024));
  z_stream stream = {};
  if (inflateInit(&stream) != Z_OK) return {};
  stream.next_in = const_cast<uint8_t*>(deflated.data());
  stream.avail_in = static_cast<uInt>(deflated.size());
  stream.next_out = text.data();
  stream.avail_out = static_cast<uInt>(text.size());
  inflate(&stream, Z_FINISH);  // what a damaged or overlong stream gave up to its fault is kept
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return text;
}

// ImageMagick's text form of EXIF: "\nexif\n   length\nhex digits in lines".
std::vector<uint8_t> decode_raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  std::vector<uint8_t> bytes;
  int high = -1;
  for (const char c : text) {
    if (c == '\n') continue;
    const int digit = c >= '0' && c <= '9'                 ? c - '0'
                      : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                           : -1;
    if (digit < 0) return {};
    if (high < 0) {
      high = digit;
    } else {
      bytes.push_back(static_cast<uint8_t>(high * 16 + digit));
      high = -1;
    }
  }
  return bytes;
}

struct Orientation {
  std::optional<int> chunk;    // eXIf
  std::optional<int> profile;  // text chunk "Raw profile type exif"
  std::optional<int> xmp;      // international text chunk "XML:com.adobe.xmp"
};

// Splits off what stands before the next zero byte; empty if there is none.
std::optional<Bytes> take_field(Bytes& rest) {
  const auto zero = std::find(rest.begin(), rest.end(), uint8_t{0});
  if (zero == rest.end()) return {};
  const auto length = static_cast<size_t>(zero - rest.begin());
  const Bytes field = rest.first(length);
  rest = rest.subspan(length + 1);
  return field;
}

void take_text(std::string_view type, Bytes body, Orientation& orientation) {
  const std::optional<Bytes> keyword = take_field(body);
  if (!keyword) return;
  bool deflated = type == "zTXt";
  if (type == "iTXt") {  // compression flag and method, language, translated keyword
    if (body.size() < 2) return;
    deflated = body[0] == 1;
    body = body.subspan(2);
    if (!take_field(body) || !take_field(body)) return;
  } else if (deflated) {  // compression method
    if (body.empty()) return;
    body = body.subspan(1);
  }
  const bool is_profile = as_text(*keyword) == "Raw profile type exif";
  const bool is_xmp = type == "iTXt" && as_text(*keyword) == "XML:com.adobe.xmp";
  if (!is_profile && !is_xmp) return;
  std::vector<uint8_t> inflated;
  if (deflated) {
    inflated = inflate_metadata(body);
    body = inflated;
  }
  if (is_xmp) {
    orientation.xmp = xmp_orientation(body);
  } else {
    orientation.profile = exif_orientation(decode_raw_profile(as_text(body)));
  }
}

}  // namespace

Outcome<ImageHeader> read_png_header(Bytes file) {
  const Fault cut{FaultKind::kTruncated, "the PNG ends before its IEND chunk"};
  ImageHeader header;
  header.format = ImageFormat::kPng;
  Orientation orientation;
  size_t at = kSignatureBytes;
  while (true) {  // a chunk: length, type, body, checksum
    if (file.size() - at < 12) return cut;
    const size_t length = big_endian_32(file, at);
    const std::string_view type = as_text(file.subspan(at + 4, 4));
    if (length > file.size() - at - 12) return cut;
    const Bytes body = file.subspan(at + 8, length);
    if (at == kSignatureBytes) {
      if (type != "IHDR" || length != 13)
        return Fault{FaultKind::kCorrupt, "the PNG does not begin with IHDR"};
      header.stored_width = big_endian_32(body, 0);
      header.stored_height = big_endian_32(body, 4);
      const auto is_legal = [](int64_t edge) { return edge >= 1 && edge <= INT32_MAX; };
      if (!is_legal(header.stored_width) || !is_legal(header.stored_height)) {
        return Fault{FaultKind::kCorrupt, "the PNG has an edge of 0 or more than 2^31 - 1 pixels"};
      }
    } else if (type == "eXIf") {
      orientation.chunk = exif_orientation(body);
    } else if (type == "tEXt" || type == "zTXt" || type == "iTXt") {
      take_text(type, body, orientation);
    } else if (type == "IEND") {
      header.orientation = effective_orientation(
          orientation.chunk ? orientation.chunk : orientation.profile, orientation.xmp);
      return header;
    }
    at += 12 + length;
  }
}

}  // namespace keyseat::data
