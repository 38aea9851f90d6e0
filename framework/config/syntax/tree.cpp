#include "config/syntax/tree.h"

#include <algorithm>

#include "base/option_value.h"

namespace keyseat {
namespace {

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

}  // namespace

const Node* Node::find(std::string_view name) const {
  for (const Member& member : members) {
    if (member.name == name) return &member.node;
  }
  return nullptr;
}

Node* Node::find(std::string_view name) {
  return const_cast<Node*>(static_cast<const Node*>(this)->find(name));
}

std::string Node::string_at(std::string_view name) const {
  const Node* node = find(name);
  if (node == nullptr || node->kind != Kind::kValue) return "";
  const auto* text = std::get_if<std::string>(&node->value);
  return text != nullptr ? *text : node->typed;
}

void Node::erase(std::string_view name) {
  std::erase_if(members, [&](const Member& member) { return member.name == name; });
}

Node* Node::named(std::string_view name) {
  for (Node& item : items) {
    if (item.is_table() && item.string_at("name") == name) return &item;
  }
  return nullptr;
}

std::vector<std::string> split_key(std::string_view path) {
  std::vector<std::string> parts;
  size_t at = 0;
  while (at <= path.size()) {
    std::string part;
    if (at < path.size() && (path[at] == '"' || path[at] == '\'')) {
      const size_t end = path.find(path[at], at + 1);
      if (end == std::string_view::npos) return {};
      part = std::string(path.substr(at + 1, end - at - 1));
      at = end + 1;
      if (at < path.size() && path[at] != '.') return {};
    } else {
      const size_t end = std::min(path.find('.', at), path.size());
      part = std::string(path.substr(at, end - at));
      at = end;
    }
    if (part.empty()) return {};
    parts.push_back(std::move(part));
    ++at;  // the point, or past the end
  }
  return parts;
}

std::string key_text(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), is_bare) ? name : quote(name);
}

std::string join_key(const std::string& path, const std::string& name) {
  return path.empty() ? key_text(name) : path + "." + key_text(name);
}

}  // namespace keyseat
