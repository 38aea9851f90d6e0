#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "keyseat/data/chat.h"

namespace keyseat::data {
namespace {

using nlohmann::json;

Problem message_problem(const SourcePosition& where, std::string what) {
  return Problem{.code = Code::kR6Data,
                 .where = where,
                 .what = std::move(what),
                 .why =
                     "a conversation is an array of {\"role\", \"content\"}, content a string or "
                     "an array of parts",
                 .remedy = "convert the record, or leave it out"};
}

std::optional<Role> role_of(const json& message) {
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return std::nullopt;
  if (*role == "system") return Role::kSystem;
  if (*role == "user") return Role::kUser;
  if (*role == "assistant") return Role::kAssistant;
  return std::nullopt;
}

// The first key with a value that the template would leave out. Tables with one schema for all
// parts write null for what a part does not have.
std::optional<std::string> unknown_key(const json& node, std::initializer_list<const char*> known) {
  for (const auto& [key, value] : node.items()) {
    const bool is_known = std::find(known.begin(), known.end(), key) != known.end();
    if (!is_known && !value.is_null()) return key;
  }
  return std::nullopt;
}

// Text of a string value; empty if the key is missing or null; nothing for any other type.
std::optional<std::string> string_at(const json& node, const char* key) {
  const json value = node.value(key, json());
  if (value.is_null()) return std::string();
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

// Seconds of every frame, from "fps" or "timestamps"; the returned text is empty or says what is
// wrong.
std::string parse_times(const json& node, Part& part) {
  const json fps = node.value("fps", json()), timestamps = node.value("timestamps", json());
  if (fps.is_null() == timestamps.is_null()) return "needs either \"fps\" or \"timestamps\"";
  if (!fps.is_null()) {
    if (!fps.is_number() || !(fps.get<double>() > 0)) return "has an \"fps\" that is not above 0";
    for (size_t frame = 0; frame < part.frames.size(); ++frame)
      part.seconds.push_back(static_cast<double>(frame) / fps.get<double>());
    return "";
  }
  if (!timestamps.is_array() || timestamps.size() != part.frames.size())
    return "needs one of \"timestamps\" per frame";
  for (const json& second : timestamps) {
    const double value = second.is_number() ? second.get<double>() : -1;
    if (!(value >= 0) || (!part.seconds.empty() && value < part.seconds.back()))
      return "has \"timestamps\" that are no rising seconds";
    part.seconds.push_back(value);
  }
  return "";
}

// A video is a list of frames; the name of a video file is kept, to be refused by name.
std::string parse_video(const json& node, Part& part) {
  const json video = node.value("video", json());
  if (video.is_null()) return "";
  if (video.is_string()) {
    part.source = video.get<std::string>();
    return "";
  }
  if (!video.is_array()) return "needs a list of frames under \"video\"";
  for (const json& frame : video) {
    if (!frame.is_string()) return "has a frame that is not the name of a file";
    part.frames.push_back(frame.get<std::string>());
  }
  return parse_times(node, part);
}

Result<Part> parse_part(const json& node, const std::string& name, const SourcePosition& where) {
  const json type = node.is_object() ? node.value("type", json()) : json();
  const bool is_text = type == "text", is_image = type == "image";
  if (!is_text && !is_image && type != "video") {
    return message_problem(where, name + " has no \"type\" out of text, image, video");
  }
  const char* kind = is_text ? "text" : is_image ? "image" : "video";
  const auto unknown = is_text || is_image ? unknown_key(node, {"type", kind})
                                           : unknown_key(node, {"type", kind, "fps", "timestamps"});
  if (unknown)
    return message_problem(where,
                           name + " (" + kind + ") has the unknown key \"" + *unknown + "\"");
  Part part;
  if (!is_text && !is_image) {
    part.type = PartType::kVideo;
    const std::string wrong = parse_video(node, part);
    if (!wrong.empty()) return message_problem(where, name + " (video) " + wrong);
    return part;
  }
  const std::optional<std::string> value = string_at(node, kind);
  if (!value || (is_text && node.value("text", json()).is_null())) {
    return message_problem(where, name + " needs a string under \"" + kind + "\"");
  }
  part.type = is_text ? PartType::kText : PartType::kImage;
  (is_text ? part.text : part.source) = *value;
  return part;
}

Result<Message> parse_message(const json& node, const std::string& name,
                              const SourcePosition& where) {
  const std::optional<Role> role = node.is_object() ? role_of(node) : std::nullopt;
  if (!role) return message_problem(where, name + " has no role out of system, user, assistant");
  if (const auto key = unknown_key(node, {"role", "content"})) {
    return message_problem(where, name + " has the unknown key \"" + *key + "\"");
  }
  Message message{*role, {}};
  const json content = node.value("content", json());
  if (content.is_string()) {
    message.parts.push_back({PartType::kText, content.get<std::string>()});
    return message;
  }
  if (!content.is_array()) {
    return message_problem(where, name + " has a content that is neither a string nor an array");
  }
  for (size_t i = 0; i < content.size(); ++i) {
    Result<Part> part = parse_part(content[i], name + ", part " + std::to_string(i), where);
    if (!part) return part.problem();
    message.parts.push_back(std::move(part).value());
  }
  return message;
}

}  // namespace

Result<std::vector<Message>> parse_messages(const json& messages, const SourcePosition& where) {
  if (!messages.is_array()) return message_problem(where, "\"messages\" is not an array");
  std::vector<Message> parsed;
  for (size_t i = 0; i < messages.size(); ++i) {
    Result<Message> message = parse_message(messages[i], "message " + std::to_string(i), where);
    if (!message) return message.problem();
    parsed.push_back(std::move(message).value());
  }
  return parsed;
}

}  // namespace keyseat::data
