// Legend: P patches, D elements of a patch.
#include "data/visuals.h"

#include <ATen/ops/empty.h>

namespace keyseat::data {

namespace {

Fault named(const std::string& file, const Fault& fault) {
  return {fault.kind, file + ": " + fault.detail};
}

}  // namespace

Outcome<Visual> VisualReader::measure_part(const Part& part, const ReadFile& read) const {
  Visual visual;
  visual.is_video = part.type == PartType::kVideo;
  const int64_t temporal = cutter_.format().temporal_patch_size;
  if (visual.is_video) {
    const auto frames = static_cast<int64_t>(part.frames.size());
    if (!settings_.takes_videos)
      return Fault{FaultKind::kBadRecord, "holds a video, the model takes none"};
    if (!part.source.empty()) {
      return Fault{FaultKind::kUnsupportedFormat,
                   part.source + " is a video file; a video is a list of frames here"};
    }
    if (frames < temporal) {
      return Fault{FaultKind::kFrameSizes,
                   fmt::format("a video of {} frames, {} are one group", frames, temporal)};
    }
    if (frames > settings_.max_frames) {
      return Fault{FaultKind::kTooManyFrames, fmt::format("a video of {} frames, the limit is {}",
                                                          frames, settings_.max_frames)};
    }
    visual.names = part.frames;
    visual.seconds = part.seconds;
  } else {
    visual.names = {part.source};
  }
  ImageSize size;
  for (const std::string& name : visual.names) {
    auto bytes = read(name);
    if (!bytes) return bytes.fault();
    visual.files.push_back(std::move(bytes).value());
    const auto header = read_image_header(visual.files.back(), settings_.limits);
    if (!header) return named(name, header.fault());
    const ImageSize own{header.value().height(), header.value().width()};
    if (visual.files.size() > 1 && own != size) {
      return Fault{FaultKind::kFrameSizes,
                   fmt::format("{}: {} x {} pixels, the frames before it {} x {}", name, own.height,
                               own.width, size.height, size.width)};
    }
    size = own;
  }
  const auto frames = static_cast<int64_t>(visual.files.size());
  const auto target = visual.is_video ? smart_resize_video(size, frames, temporal, settings_.video)
                                      : smart_resize(size, settings_.image);
  if (!target) return named(visual.names[0], target.fault());
  visual.target = target.value();
  visual.grid = cutter_.grid(visual.target.height, visual.target.width, frames);
  return visual;
}

Outcome<std::vector<Visual>> VisualReader::measure(const std::vector<Message>& messages,
                                                   const ReadFile& read) const {
  std::vector<Visual> visuals;
  for (const Message& message : messages) {
    for (const Part& part : message.parts) {
      if (part.type == PartType::kText) continue;
      auto visual = measure_part(part, read);
      if (!visual) return visual.fault();
      visuals.push_back(std::move(visual).value());
    }
  }
  return visuals;
}

Visuals VisualReader::sizes(const std::vector<Visual>& visuals) const {
  Visuals sizes;
  sizes.merge_size = cutter_.format().merge_size;
  sizes.temporal_patch_size = cutter_.format().temporal_patch_size;
  for (const Visual& visual : visuals) {
    if (visual.is_video) {
      sizes.videos.push_back({visual.grid, visual.seconds});
    } else {
      sizes.images.push_back(visual.grid);
    }
  }
  return sizes;
}

Outcome<Image> VisualReader::frame(const Visual& visual, size_t index, int64_t number,
                                   const AlterImage& alter) const {
  auto decoded = decode_image(visual.files[index], settings_.limits);
  if (!decoded) return named(visual.names[index], decoded.fault());
  return resize_bicubic(alter(std::move(decoded).value(), number), visual.target);
}

Outcome<at::Tensor> VisualReader::cut(const std::vector<Visual>& visuals,
                                      const AlterImage& alter) const {
  int64_t patches = 0;
  for (const Visual& visual : visuals) patches += visual.grid.patches();
  const int64_t elements = cutter_.format().row_size();
  at::Tensor patches_PD = at::empty({patches, elements}, at::TensorOptions(at::kFloat));
  float* next = patches_PD.data_ptr<float>();
  for (size_t n = 0; n < visuals.size(); ++n) {
    const Visual& visual = visuals[n];
    std::vector<Image> frames;
    for (size_t f = 0; f < visual.files.size(); ++f) {
      auto image = frame(visual, f, static_cast<int64_t>(n), alter);
      if (!image) return image.fault();
      frames.push_back(std::move(image).value());
    }
    const auto count = static_cast<size_t>(visual.grid.patches() * elements);
    const auto cut = cutter_.cut(frames, std::span<float>(next, count));
    if (!cut) return named(visual.names[0], cut.fault());
    next += count;
  }
  return patches_PD;
}

}  // namespace keyseat::data
