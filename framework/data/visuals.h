// Images and videos of a record: first their sizes, which decide the number of placeholders, then
// their patches.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/shard_reader.h"
#include "keyseat/data/chat.h"
#include "keyseat/data/image.h"
#include "keyseat/data/patches.h"
#include "keyseat/data/resize.h"

namespace keyseat::data {

using ReadFile = std::function<Outcome<FileBytes>(const std::string& name)>;

struct VisualSettings {
  ImageLimits limits;
  ResizeBounds image, video;  // video: of all frames together
  int64_t max_frames = 0;
  bool takes_videos = false;
};

// An image, or the frames of a video, on its way to patches.
struct Visual {
  bool is_video = false;
  std::vector<std::string> names;  // files, one per frame
  std::vector<FileBytes> files;
  std::vector<double> seconds;  // videos: of every frame
  ImageSize target;             // after resizing
  PatchGrid grid;
};

// Changes a decoded image before it is resized; `visual` counts images and videos of the sample.
using AlterImage = std::function<Image(Image image, int64_t visual)>;

class VisualReader {
 public:
  VisualReader(const PatchFormat& format, const VisualSettings& settings)
      : cutter_(format), settings_(settings) {}

  // Reads files and their headers. Faults: those of read_image_header, aspect_ratio, frame_sizes,
  // too_many_frames, unsupported_format (a video file), bad_record.
  Outcome<std::vector<Visual>> measure(const std::vector<Message>& messages,
                                       const ReadFile& read) const;
  // Decodes, alters, resizes and cuts: f32 [P, patch elements]. Faults: those of decode_image.
  Outcome<at::Tensor> cut(const std::vector<Visual>& visuals, const AlterImage& alter) const;
  // What the chat template needs of them.
  Visuals sizes(const std::vector<Visual>& visuals) const;

 private:
  Outcome<Visual> measure_part(const Part& part, const ReadFile& read) const;
  Outcome<Image> frame(const Visual& visual, size_t index, int64_t number,
                       const AlterImage& alter) const;

  PatchCutter cutter_;
  VisualSettings settings_;
};

}  // namespace keyseat::data
