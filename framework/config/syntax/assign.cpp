#include "config/syntax/assign.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/option_value.h"
#include "config/syntax/read.h"
#include "keyseat/suggest.h"

namespace keyseat {
namespace {

constexpr size_t kDeepestKey = 16;

struct Assignment {
  std::vector<std::string> key;
  Node value;
};

std::optional<Assignment> parse(const std::string& set, Problems& problems) {
  const SourcePosition where{"--set " + set, 0, 0};
  const size_t equals = set.find('=');
  Assignment assignment;
  if (equals != std::string::npos) assignment.key = split_key(set.substr(0, equals));
  if (assignment.key.empty() || assignment.key.size() > kDeepestKey) {
    problems.push_back({Code::kC1Syntax, where, "not of the form a.b=value", "",
                        "Write the table, the key, then the value: --set run.steps=100"});
    return std::nullopt;
  }
  const std::string text = set.substr(equals + 1);
  const Origin origin{"--set", where, ""};
  auto value = read_toml_value(text, origin);
  if (value) {
    assignment.value = std::move(*value);
  } else {
    assignment.value.kind = Node::Kind::kValue;
    assignment.value.value = text;
    assignment.value.origin = origin;
  }
  assignment.value.typed = text;
  return assignment;
}

// The element that `part` names or counts; a problem where there is none.
Node* element(Node& list, const std::string& part, const std::string& path,
              const SourcePosition& where, Problems& problems) {
  if (Node* named = list.named(part)) return named;
  size_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  const bool is_index = error == std::errc() && end == part.data() + part.size();
  if (is_index && index < list.items.size() && list.items[index].is_table()) {
    return &list.items[index];
  }
  std::vector<std::string> names;
  std::string known;
  for (const Node& item : list.items) {
    if (!item.is_table()) continue;
    names.push_back(item.string_at("name"));
    known += (known.empty() ? "" : ", ") + quote(names.back());
  }
  if (names.empty()) {
    problems.push_back({Code::kC3Value, where,
                        fmt::format("{} is a list of values, which is set as a whole", path), "",
                        fmt::format("Write --set {}=[...]", path)});
  } else {
    problems.push_back({Code::kC2Unknown, where,
                        fmt::format("{} has no element {}", path, quote(part)),
                        fmt::format("There are {} (0 to {})", known, names.size() - 1),
                        did_you_mean(part, names)});
  }
  return nullptr;
}

// The assignment as the tree that a file with nothing else would give.
Node tree_of(const Assignment& assignment) {
  Node tree = assignment.value;
  for (auto part = assignment.key.rbegin(); part != assignment.key.rend(); ++part) {
    Node table;
    table.members.push_back({*part, tree.origin.where, std::move(tree)});
    tree = std::move(table);
  }
  return tree;
}

void apply(Node& root, Assignment assignment, Problems& problems, Notes& notes) {
  const SourcePosition where = assignment.value.origin.where;
  const Origin origin = assignment.value.origin;
  leave_out_overlaid(root, tree_of(assignment), notes);
  Node* node = &root;
  Node* parent = nullptr;
  std::string path;
  for (const std::string& part : assignment.key) {
    Node* next = nullptr;
    if (node->kind == Node::Kind::kList) {
      next = element(*node, part, path, where, problems);
      if (next == nullptr) return;
    } else if (node->is_table()) {
      next = node->find(part);
      if (next == nullptr) {
        Node table;
        table.origin = origin;
        node->members.push_back({part, where, std::move(table)});
        next = &node->members.back().node;
      }
    } else {
      problems.push_back({Code::kC3Value, where,
                          fmt::format("{} is a value, so it has no key {}", path, quote(part)),
                          "It is given at " + node->origin.text, ""});
      return;
    }
    path = join_key(path, part);
    parent = node;
    node = next;
  }
  // The table around the key merges, so that a new plugin leaves out the old one's options.
  if (parent->is_table()) {
    Node over;
    over.origin = parent->origin;
    over.members.push_back({assignment.key.back(), where, std::move(assignment.value)});
    assignment.key.pop_back();
    std::string table;
    for (const std::string& part : assignment.key) table = join_key(table, part);
    merge_over(*parent, std::move(over), table, notes);
  } else {
    merge_over(*node, std::move(assignment.value), path, notes);
  }
}

}  // namespace

void apply_sets(Node& root, const std::vector<std::string>& sets, Problems& problems,
                Notes& notes) {
  std::vector<Assignment> assignments;
  for (const std::string& set : sets) {
    if (auto assignment = parse(set, problems)) assignments.push_back(std::move(*assignment));
  }
  std::stable_partition(assignments.begin(), assignments.end(),
                        [](const Assignment& a) { return a.key.back() == "plugin"; });
  for (Assignment& assignment : assignments) {
    apply(root, std::move(assignment), problems, notes);
  }
}

}  // namespace keyseat
