#include "config/syntax/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace keyseat {
namespace {

bool all_named(const Node& list) {
  return !list.items.empty() &&
         std::all_of(list.items.begin(), list.items.end(), [](const Node& item) {
           return item.is_table() && !item.string_at("name").empty();
         });
}

void leave_out_options(Node& base, const Node& over, const std::string& path, Notes& notes) {
  const std::string before = base.string_at("plugin");
  const std::string after = over.string_at("plugin");
  if (before.empty() || after.empty() || before == after) return;
  const Node* options = base.find("options");
  if (options == nullptr) return;
  if (options->is_table() && !options->members.empty()) {
    notes.push_back(fmt::format(
        "{}: [{}] names the plugin \"{}\" instead of \"{}\"; the options given for "
        "\"{}\" at {} are left out",
        over.find("plugin")->origin.text, path, after, before, before, options->origin.text));
  }
  base.erase("options");
}

}  // namespace

void merge_over(Node& base, Node over, const std::string& path, Notes& notes) {
  if (base.is_table() && over.is_table()) {
    leave_out_options(base, over, path, notes);
    base.origin = over.origin;
    for (Member& member : over.members) {
      const auto same = std::find_if(base.members.begin(), base.members.end(),
                                     [&](const Member& m) { return m.name == member.name; });
      if (same == base.members.end()) {
        base.members.push_back(std::move(member));
      } else {
        same->where = member.where;
        merge_over(same->node, std::move(member.node), join_key(path, member.name), notes);
      }
    }
    return;
  }
  if (base.kind == Node::Kind::kList && over.kind == Node::Kind::kList && all_named(base) &&
      all_named(over)) {
    for (Node& item : over.items) {
      Node* same = base.named(item.string_at("name"));
      if (same == nullptr) {
        base.items.push_back(std::move(item));
      } else {
        const std::string name = item.string_at("name");
        merge_over(*same, std::move(item), join_key(path, name), notes);
      }
    }
    return;
  }
  base = std::move(over);
}

}  // namespace keyseat
