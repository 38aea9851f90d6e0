#include "data/chat_segments.h"

namespace keyseat::data {
namespace {

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
  }
  return {};
}

void append(std::vector<Segment>& segments, std::string_view text, bool is_supervised) {
  if (text.empty()) return;
  if (segments.empty() || segments.back().is_supervised != is_supervised) {
    segments.push_back({std::string(text), is_supervised});
  } else {
    segments.back().text.append(text);
  }
}

}  // namespace

std::vector<Segment> render_segments(const std::vector<Message>& messages,
                                     const ChatOptions& options) {
  std::vector<Segment> segments;
  int images = 0, videos = 0;
  const auto append_visual = [&](std::string_view name, int number, std::string_view placeholder) {
    if (options.add_vision_id)
      append(segments, std::string(name) + " " + std::to_string(number) + ": ", false);
    append(segments, std::string(kVisionStart).append(placeholder).append(kVisionEnd), false);
  };
  for (const Message& message : messages) {
    const bool is_supervised = message.role == Role::kAssistant;
    append(segments, std::string(kMessageStart).append(role_name(message.role)).append("\n"),
           false);
    for (const Part& part : message.parts) {
      switch (part.type) {
        case PartType::kText:
          append(segments, part.text, is_supervised);
          break;
        case PartType::kImage:
          append_visual("Picture", ++images, kImagePlaceholder);
          break;
        case PartType::kVideo:
          append_visual("Video", ++videos, kVideoPlaceholder);
          break;
      }
    }
    append(segments, kMessageEnd, is_supervised);
    append(segments, "\n", false);
  }
  if (options.add_generation_prompt) append(segments, "<|im_start|>assistant\n", false);
  return segments;
}

std::string render(const std::vector<Message>& messages, const ChatOptions& options) {
  std::string rendered;
  for (const Segment& segment : render_segments(messages, options)) rendered.append(segment.text);
  return rendered;
}

}  // namespace keyseat::data
