// The built-in template as a list of segments, so that the loss mask knows where each text came
// from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "keyseat/data/chat.h"

namespace keyseat::data {

inline constexpr std::string_view kMessageStart = "<|im_start|>";
inline constexpr std::string_view kMessageEnd = "<|im_end|>";
inline constexpr std::string_view kVisionStart = "<|vision_start|>";
inline constexpr std::string_view kVisionEnd = "<|vision_end|>";
inline constexpr std::string_view kImagePlaceholder = "<|image_pad|>";
inline constexpr std::string_view kVideoPlaceholder = "<|video_pad|>";

struct Segment {
  std::string text;
  bool is_supervised;
};

// Neighbouring segments differ in is_supervised; their texts joined are the rendered conversation.
std::vector<Segment> render_segments(const std::vector<Message>& messages,
                                     const ChatOptions& options);

// Expands segment after segment, counting the visuals over all of them.
class Expander {
 public:
  explicit Expander(const Visuals& visuals) : visuals_(visuals) {}
  std::optional<Problem> append(std::string_view rendered, std::string& expanded);
  // Errors: R6 if the conversation had more or fewer placeholders than visuals.
  std::optional<Problem> finish() const;

 private:
  std::optional<Problem> append_image(const PatchGrid& grid, std::string& expanded) const;
  std::optional<Problem> append_video(const VideoSize& video, std::string& expanded) const;

  const Visuals& visuals_;
  size_t images_ = 0;
  size_t videos_ = 0;
};

}  // namespace keyseat::data
