// JPEG through TurboJPEG, whose API keeps libjpeg's longjmp error handling to itself.

#include <turbojpeg.h>

#include <memory>
#include <string>
#include <vector>

#include "image_codecs.h"

namespace keyseat::data {

namespace {

// The frame header (SOF segment): precision, size, number of components.
struct Frame {
  uint32_t marker = 0;
  uint32_t precision = 0;
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t components = 0;
};

struct Markers {
  std::optional<Frame> frame;
  std::vector<uint8_t> exif;  // segments of one EXIF block are joined
  Bytes xmp;
};

bool is_frame_header(uint32_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

// Baseline, extended and progressive Huffman, and the two arithmetic-coded forms of them.
bool is_supported_coding(uint32_t marker) {
  return marker <= 0xC2 || marker == 0xC9 || marker == 0xCA;
}

void take_application_segment(Bytes body, Markers& markers) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  constexpr std::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  const std::string_view text = as_text(body);
  if (text.starts_with(kExif)) {
    const Bytes rest = body.subspan(kExif.size());
    markers.exif.insert(markers.exif.end(), rest.begin(), rest.end());
  } else if (text.starts_with(kXmp)) {
    markers.xmp = body.subspan(kXmp.size());
  }
}

// Walks the marker segments up to the first scan.
Outcome<Markers> read_markers(Bytes file) {
  const Fault cut{FaultKind::kTruncated, "the JPEG ends inside its header"};
  Markers markers;
  size_t at = 2;  // behind the start-of-image marker
  while (true) {
    if (at + 2 > file.size()) return cut;
    if (file[at] != 0xFF) return Fault{FaultKind::kCorrupt, "no JPEG marker where one is due"};
    const uint32_t marker = file[at + 1];
    if (marker == 0xFF) {  // a fill byte
      ++at;
      continue;
    }
    at += 2;
    if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7)) continue;  // no body
    if (marker == 0xDA) return markers;
    if (marker == 0xD9) return Fault{FaultKind::kCorrupt, "the JPEG holds no scan"};
    if (at + 2 > file.size()) return cut;
    const size_t length = big_endian_16(file, at);
    if (length < 2) return Fault{FaultKind::kCorrupt, "a JPEG segment has a length below 2"};
    if (length > file.size() - at) return cut;
    const Bytes body = file.subspan(at + 2, length - 2);
    if (is_frame_header(marker) && !markers.frame) {
      if (body.size() < 6) return Fault{FaultKind::kCorrupt, "the JPEG frame header is too short"};
      markers.frame =
          Frame{marker, body[0], big_endian_16(body, 1), big_endian_16(body, 3), body[5]};
    } else if (marker == 0xE1) {
      take_application_segment(body, markers);
    }
    at += length;
  }
}

// Adobe's convention, which every known writer of CMYK files follows: the stored values are
// inverted.
void cmyk_to_rgb(std::span<const uint8_t> cmyk, std::span<uint8_t> rgb) {
  for (size_t pixel = 0; pixel < cmyk.size() / 4; ++pixel) {
    const uint32_t light = cmyk[4 * pixel + 3];  // 255 - K
    for (size_t channel = 0; channel < 3; ++channel) {
      const uint32_t product = (255u - cmyk[4 * pixel + channel]) * light + 128;
      rgb[3 * pixel + channel] = static_cast<uint8_t>(light - ((product >> 8) + product) / 256);
    }
  }
}

struct TurboCloser {
  void operator()(void* handle) const { tjDestroy(handle); }
};

}  // namespace

Outcome<ImageHeader> read_jpeg_header(Bytes file) {
  Outcome<Markers> found = read_markers(file);
  if (!found) return found.fault();
  const Markers& markers = found.value();
  if (!markers.frame)
    return Fault{FaultKind::kCorrupt, "the JPEG scan comes before its frame header"};
  const Frame& frame = *markers.frame;
  if (!is_supported_coding(frame.marker) || frame.precision != 8) {
    return Fault{FaultKind::kUnsupportedFormat,
                 "lossless, hierarchical or " + std::to_string(frame.precision) + "-bit JPEG"};
  }
  if (frame.components != 1 && frame.components != 3 && frame.components != 4) {
    return Fault{FaultKind::kUnsupportedFormat,
                 "JPEG with " + std::to_string(frame.components) + " components"};
  }
  if (frame.height == 0 || frame.width == 0) {
    return Fault{FaultKind::kUnsupportedFormat,
                 "JPEG that does not state its size in the frame header"};
  }
  ImageHeader header;
  header.format = ImageFormat::kJpeg;
  header.stored_height = frame.height;
  header.stored_width = frame.width;
  header.orientation =
      effective_orientation(exif_orientation(markers.exif), xmp_orientation(markers.xmp));
  return header;
}

std::optional<Fault> decode_jpeg(Bytes file, const ImageHeader& header, std::span<uint8_t> rgb) {
  const std::unique_ptr<void, TurboCloser> turbo(tjInitDecompress());
  if (!turbo) return Fault{FaultKind::kOutOfMemory, "no memory for a JPEG decoder"};

  const bool four_channels = read_markers(file).value().frame->components == 4;
  std::vector<uint8_t> cmyk;
  if (four_channels) cmyk.resize(rgb.size() / 3 * 4);
  // A progressive file may name millions of scans to keep a decoder busy; the flag stops at 500.
  const int flags = TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS;
  const int status = tjDecompress2(
      turbo.get(), file.data(), file.size(), four_channels ? cmyk.data() : rgb.data(),
      static_cast<int>(header.stored_width), 0, static_cast<int>(header.stored_height),
      four_channels ? TJPF_CMYK : TJPF_RGB, flags);
  if (status != 0) {
    const std::string text = tjGetErrorStr2(turbo.get());
    const bool cut = text.find("Premature end") != text.npos;
    return Fault{cut ? FaultKind::kTruncated : FaultKind::kCorrupt, "JPEG decoder: " + text};
  }
  if (four_channels) cmyk_to_rgb(cmyk, rgb);
  return {};
}

}  // namespace keyseat::data
