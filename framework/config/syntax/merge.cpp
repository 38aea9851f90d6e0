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

// Tables whose `options` lie over those of another table's plugin, and so belong to that plugin.
struct OverlaidOptions {
  std::string_view table, plugin_table;
};
constexpr OverlaidOptions kOverlaid[] = {{"eval", "data"}};

// `owner` holds `options` that were given for the plugin that `base` names; where `over` names
// another one, they go.
void leave_out_options(Node& owner, const Node& base, const Node& over, const std::string& path,
                       const std::string& shown, Notes& notes) {
  const std::string before = base.string_at("plugin");
  const std::string after = over.string_at("plugin");
  if (before.empty() || after.empty() || before == after) return;
  const Node* options = owner.find("options");
  if (options == nullptr) return;
  if (options->is_table() && !options->members.empty()) {
    notes.push_back(
        fmt::format("{}: [{}] names the plugin \"{}\" instead of \"{}\"; the options given for "
                    "\"{}\" {} {} are left out",
                    over.find("plugin")->origin.text, path, after, before, before, shown,
                    options->origin.text));
  }
  owner.erase("options");
}

}  // namespace

void leave_out_overlaid(Node& root, const Node& over, Notes& notes) {
  for (const OverlaidOptions& overlaid : kOverlaid) {
    Node* owner = root.find(overlaid.table);
    const Node* before = root.find(overlaid.plugin_table);
    const Node* after = over.find(overlaid.plugin_table);
    if (owner == nullptr || before == nullptr || after == nullptr) continue;
    leave_out_options(*owner, *before, *after, std::string(overlaid.plugin_table),
                      fmt::format("in [{}.options] at", overlaid.table), notes);
  }
}

void merge_over(Node& base, Node over, const std::string& path, Notes& notes) {
  if (base.is_table() && over.is_table()) {
    if (path.empty()) leave_out_overlaid(base, over, notes);
    leave_out_options(base, base, over, path, "at", notes);
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
