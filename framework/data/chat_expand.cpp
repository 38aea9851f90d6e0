#include <fmt/format.h>

#include "data/chat_segments.h"

namespace keyseat::data {
namespace {

Problem visual_problem(std::string what, std::string why) {
  return Problem{
      .code = Code::kR6Data,
      .where = {},
      .what = std::move(what),
      .why = std::move(why),
      .remedy = "check the images and videos that this record names against its messages"};
}

std::optional<Problem> check_grid(const PatchGrid& grid, int64_t merge_size) {
  const bool fits = merge_size > 0 && grid.t > 0 && grid.h > 0 && grid.w > 0 &&
                    grid.h % merge_size == 0 && grid.w % merge_size == 0;
  if (fits) return std::nullopt;
  return visual_problem(fmt::format("a visual of {} x {} x {} patches cannot be merged by {} x {}",
                                    grid.t, grid.h, grid.w, merge_size, merge_size),
                        "height and width in patches must be positive multiples of the merge size");
}

void append_copies(std::string_view placeholder, const PatchGrid& grid, int64_t merge_size,
                   std::string& expanded) {
  for (int64_t i = 0; i < grid.h * grid.w / (merge_size * merge_size); ++i)
    expanded.append(placeholder);
}

}  // namespace

std::optional<Problem> Expander::append_image(const PatchGrid& grid, std::string& expanded) const {
  if (auto problem = check_grid(grid, visuals_.merge_size)) return problem;
  if (grid.t != 1)
    return visual_problem(fmt::format("an image has {} frame groups", grid.t), "an image has one");
  append_copies(kImagePlaceholder, grid, visuals_.merge_size, expanded);
  return std::nullopt;
}

std::optional<Problem> Expander::append_video(const VideoSize& video, std::string& expanded) const {
  if (auto problem = check_grid(video.grid, visuals_.merge_size)) return problem;
  const auto frames = static_cast<int64_t>(video.frame_seconds.size());
  const int64_t per_group = visuals_.temporal_patch_size;
  if (per_group <= 0 || (frames + per_group - 1) / per_group != video.grid.t) {
    return visual_problem(fmt::format("a video of {} frames does not make {} groups of {}", frames,
                                      video.grid.t, per_group),
                          "every frame group carries the time of its frames");
  }
  for (int64_t group = 0; group < video.grid.t; ++group) {
    const double first = video.frame_seconds[static_cast<size_t>(group * per_group)];
    const double last =
        video.frame_seconds[static_cast<size_t>(std::min((group + 1) * per_group, frames) - 1)];
    // Like Python's, this rounds the exact binary value half to even: 0.25 is printed as 0.2.
    expanded.append(fmt::format("<{:.1f} seconds>", (first + last) / 2)).append(kVisionStart);
    append_copies(kVideoPlaceholder, video.grid, visuals_.merge_size, expanded);
    expanded.append(kVisionEnd);
  }
  return std::nullopt;
}

std::optional<Problem> Expander::append(std::string_view rendered, std::string& expanded) {
  while (true) {
    const size_t image = rendered.find(kImagePlaceholder);
    const size_t video = rendered.find(kVideoPlaceholder);
    const size_t at = std::min(image, video);
    expanded.append(rendered.substr(0, at));
    if (at == std::string_view::npos) return std::nullopt;
    std::optional<Problem> problem;
    if (at == image) {
      // Missing visuals are counted here and reported by finish(), with the totals.
      if (images_ < visuals_.images.size())
        problem = append_image(visuals_.images[images_], expanded);
      ++images_;
    } else {
      if (videos_ < visuals_.videos.size())
        problem = append_video(visuals_.videos[videos_], expanded);
      ++videos_;
    }
    if (problem) return problem;
    rendered.remove_prefix(at + (at == image ? kImagePlaceholder : kVideoPlaceholder).size());
  }
}

std::optional<Problem> Expander::finish() const {
  const auto mismatch = [](std::string_view placeholder, size_t placeholders,
                           std::string_view visual, size_t given) {
    return visual_problem(
        fmt::format("the conversation has {} {} placeholders, but {} {} are given", placeholders,
                    placeholder, given, visual),
        "each placeholder stands for one visual; a text that spells the placeholder out counts "
        "too");
  };
  if (images_ != visuals_.images.size()) {
    return mismatch(kImagePlaceholder, images_, "images", visuals_.images.size());
  }
  if (videos_ != visuals_.videos.size()) {
    return mismatch(kVideoPlaceholder, videos_, "videos", visuals_.videos.size());
  }
  return std::nullopt;
}

Result<std::string> expand(std::string_view rendered, const Visuals& visuals) {
  Expander expander(visuals);
  std::string expanded;
  if (auto problem = expander.append(rendered, expanded)) return *std::move(problem);
  if (auto problem = expander.finish()) return *std::move(problem);
  return expanded;
}

}  // namespace keyseat::data
