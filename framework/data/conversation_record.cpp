#include "data/conversation_record.h"

#include <nlohmann/json.hpp>

#include "data/chat_segments.h"
#include "data/utf8.h"

namespace keyseat::data {

namespace {

using nlohmann::json;

// The first role that is a text, but none of ours.
std::optional<std::string> unknown_role(const json& messages) {
  if (!messages.is_array()) return std::nullopt;
  for (const json& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) continue;
    const auto role = message["role"].get<std::string>();
    if (role != "system" && role != "user" && role != "assistant") return role;
  }
  return std::nullopt;
}

// Placeholders come from parts only: one in a text would stand for an image that is not there.
std::optional<Fault> spelled_placeholder(const std::vector<Message>& messages) {
  for (size_t m = 0; m < messages.size(); ++m) {
    for (const Part& part : messages[m].parts) {
      for (const std::string_view placeholder : {kImagePlaceholder, kVideoPlaceholder}) {
        if (part.text.find(placeholder) == std::string::npos) continue;
        return Fault{FaultKind::kPlaceholders,
                     fmt::format("message {} spells {} out in its text", m, placeholder)};
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Outcome<std::vector<Message>> read_messages(const std::string& text) {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string::npos) {
    return Fault{FaultKind::kBadUtf8, fmt::format("bad UTF-8 at byte {} of the record", invalid)};
  }
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return Fault{FaultKind::kBadJson, "the record is not JSON"};
  if (!root.is_object() || !root.contains("messages"))
    return Fault{FaultKind::kBadRecord, "has no \"messages\""};
  if (const auto role = unknown_role(root["messages"]))
    return Fault{FaultKind::kUnknownRole, "a message has the role \"" + *role + "\""};
  auto messages = parse_messages(root["messages"], {});
  if (!messages) return Fault{FaultKind::kBadRecord, messages.problem().what};
  if (messages.value().empty()) return Fault{FaultKind::kBadRecord, "has no message"};
  if (const auto spelled = spelled_placeholder(messages.value())) return *spelled;
  return std::move(messages).value();
}

Outcome<std::string> take_answer(std::vector<Message>& messages) {
  if (messages.back().role != Role::kAssistant) {
    return Fault{FaultKind::kBadRecord, "does not end with an assistant message to compare with"};
  }
  std::string answer;
  for (const Part& part : messages.back().parts) answer += part.text;
  messages.pop_back();
  return answer;
}

}  // namespace keyseat::data
