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

Result<Part> parse_part(const json& node, const std::string& name, const SourcePosition& where) {
  const json type = node.is_object() ? node.value("type", json()) : json();
  const bool is_text = type == "text", is_image = type == "image";
  if (!is_text && !is_image && type != "video") {
    return message_problem(where, name + " has no \"type\" out of text, image, video");
  }
  const char* kind = is_text ? "text" : is_image ? "image" : "video";
  if (const auto key = unknown_key(node, {"type", kind})) {
    return message_problem(where, name + " (" + kind + ") has the unknown key \"" + *key + "\"");
  }
  const std::optional<std::string> value = string_at(node, kind);
  if (!value || (is_text && node.value("text", json()).is_null())) {
    return message_problem(where, name + " needs a string under \"" + kind + "\"");
  }
  if (is_text) return Part{PartType::kText, *value, {}};
  return Part{is_image ? PartType::kImage : PartType::kVideo, {}, *value};
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
    message.parts.push_back({PartType::kText, content.get<std::string>(), {}});
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
