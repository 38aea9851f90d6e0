#include "config/syntax/include.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/option_value.h"
#include "config/syntax/read.h"

namespace keyseat {
namespace {

// Bounds what a few files that include each other many times over could make of themselves.
constexpr int kMostFiles = 64;

class Includer {
 public:
  Includer(std::string layer, Problems& problems, Notes& notes)
      : layer_(std::move(layer)), problems_(problems), notes_(notes) {}

  std::optional<Node> read(const std::string& path, const SourcePosition& asked_by) {
    std::error_code error;
    const std::string identity = std::filesystem::weakly_canonical(path, error).string();
    if (std::find(open_.begin(), open_.end(), identity) != open_.end()) {
      problems_.push_back({Code::kC4Combination, asked_by,
                           fmt::format("{} is a base of itself: {}", quote(path), loop(identity)),
                           "", "Remove one of these `base` keys"});
      return std::nullopt;
    }
    if (++files_ > kMostFiles) {
      if (files_ == kMostFiles + 1) {
        problems_.push_back({Code::kC4Combination, asked_by,
                             fmt::format("more than {} files are included", kMostFiles), "",
                             "Include each base once"});
      }
      return std::nullopt;
    }
    const auto text = read_config_text(path, asked_by, problems_);
    if (!text) return std::nullopt;
    const std::string folder = std::filesystem::path(path).parent_path().string();
    auto root = read_toml(*text, path, folder, layer_, problems_);
    if (!root) return std::nullopt;
    open_.push_back(identity);
    // Tables first: their own bases lie over what a base of the whole file gives them.
    for (Member& member : root->members) {
      if (member.node.is_table()) put_below(member.node, member.name);
    }
    put_below(*root, "");
    open_.pop_back();
    return root;
  }

 private:
  // Replaces the table's `base` key by what the named files give.
  void put_below(Node& table, const std::string& name) {
    const Node* base = table.find("base");
    if (base == nullptr) return;
    std::vector<Node> files;
    if (base->kind == Node::Kind::kList) {
      files = base->items;
    } else {
      files.push_back(*base);
    }
    table.erase("base");
    Node below;
    for (const Node& file : files) {
      const auto* given = std::get_if<std::string>(&file.value);
      if (file.kind != Node::Kind::kValue || given == nullptr || given->empty()) {
        problems_.push_back({Code::kC3Value, file.origin.where,
                             "base must be the path of a file or a list of paths", "", ""});
        continue;
      }
      const auto path =
          (std::filesystem::path(file.origin.folder) / *given).lexically_normal().string();
      auto root = read(path, file.origin.where);
      if (!root) continue;
      if (name.empty()) {
        merge_over(below, std::move(*root), "", notes_);
      } else {
        take_table(below, std::move(*root), name, path, file.origin.where);
      }
    }
    merge_over(below, std::move(table), name, notes_);
    table = std::move(below);
  }

  void take_table(Node& below, Node root, const std::string& name, const std::string& path,
                  const SourcePosition& asked_by) {
    for (const Member& member : root.members) {
      if (member.name == name) continue;
      problems_.push_back(
          {Code::kC2Unknown, member.where,
           fmt::format("{} does not belong here: {}:{} includes this file as base of [{}]",
                       quote(member.name), asked_by.file, asked_by.line, name),
           fmt::format("Only [{}] of it would be read", name),
           "Name the file in a `base` at the top of the including file instead"});
    }
    Node* table = root.find(name);
    if (table == nullptr || !table->is_table()) {
      problems_.push_back({Code::kC3Value, asked_by,
                           fmt::format("{} has no table [{}]", quote(path), name), "", ""});
      return;
    }
    merge_over(below, std::move(*table), name, notes_);
  }

  std::string loop(const std::string& identity) const {
    std::string text;
    for (const std::string& file : open_) text += file + " -> ";
    return text + identity;
  }

  std::string layer_;
  Problems& problems_;
  Notes& notes_;
  std::vector<std::string> open_;  // the files that wait for their bases
  int files_ = 0;
};

}  // namespace

std::optional<Node> read_config_file(const std::string& path, const std::string& layer,
                                     Problems& problems, Notes& notes) {
  return Includer(layer, problems, notes).read(path, SourcePosition());
}

}  // namespace keyseat
