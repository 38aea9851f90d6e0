// WebP through libwebp's demuxer and animation decoder: one path for still and animated files, as
// in Pillow.

#include <webp/demux.h>

#include <memory>
#include <string>

#include "image_codecs.h"

namespace keyseat::data {

namespace {

struct DemuxCloser {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
struct AnimationCloser {
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
};

// The first chunk of that name, empty if there is none. Points into the file.
Bytes find_chunk(const WebPDemuxer* demuxer, const char* name) {
  WebPChunkIterator iterator = {};
  Bytes found;
  if (WebPDemuxGetChunk(demuxer, name, 1, &iterator)) {
    found = {iterator.chunk.bytes, iterator.chunk.size};
  }
  WebPDemuxReleaseChunkIterator(&iterator);
  return found;
}

}  // namespace

Outcome<ImageHeader> read_webp_header(Bytes file) {
  const WebPData data{file.data(), file.size()};
  WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
  const std::unique_ptr<WebPDemuxer, DemuxCloser> demuxer(WebPDemuxPartial(&data, &state));
  if (state == WEBP_DEMUX_PARSING_HEADER || state == WEBP_DEMUX_PARSED_HEADER) {
    return Fault{FaultKind::kTruncated, "the WebP file ends before its last chunk does"};
  }
  if (!demuxer || state != WEBP_DEMUX_DONE) {
    return Fault{FaultKind::kCorrupt, "the WebP container is damaged"};
  }
  ImageHeader header;
  header.format = ImageFormat::kWebp;
  header.stored_width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  header.stored_height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  header.orientation = effective_orientation(exif_orientation(find_chunk(demuxer.get(), "EXIF")),
                                             xmp_orientation(find_chunk(demuxer.get(), "XMP ")));
  return header;
}

std::optional<Fault> decode_webp(Bytes file, const ImageHeader&, std::span<uint8_t> rgb) {
  WebPAnimDecoderOptions options;
  if (!WebPAnimDecoderOptionsInit(&options)) {
    return Fault{FaultKind::kUnsupportedFormat, "libwebp has another version than its headers"};
  }
  options.color_mode = MODE_RGBA;
  options.use_threads = 0;  // loaders run one image per thread
  const WebPData data{file.data(), file.size()};
  const std::unique_ptr<WebPAnimDecoder, AnimationCloser> decoder(
      WebPAnimDecoderNew(&data, &options));
  uint8_t* rgba = nullptr;  // owned by the decoder
  int timestamp_ms = 0;
  if (!decoder || !WebPAnimDecoderGetNext(decoder.get(), &rgba, &timestamp_ms)) {
    return Fault{FaultKind::kCorrupt, "the WebP image data is damaged"};
  }
  for (size_t pixel = 0; pixel < rgb.size() / 3; ++pixel) {
    for (size_t channel = 0; channel < 3; ++channel)
      rgb[3 * pixel + channel] = rgba[4 * pixel + channel];
  }
  return {};
}

}  // namespace keyseat::data
