// The tree of a configuration before it is checked: what files, overlays and --set gave, each value
// with its origin and position. Free of toml++ and LibTorch types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "keyseat/options.h"
#include "keyseat/status.h"

namespace keyseat {

// Who gave a value.
struct Origin {
  std::string text;      // "a.toml:12", "overlay b.toml:3", "--set"
  SourcePosition where;  // of the value
  std::string folder;    // relative paths start here; empty: the working folder
};

struct Member;

// A TOML value. Dates and times are values of no option type: a kValue without a value.
struct Node {
  enum class Kind { kTable, kList, kValue };

  Kind kind = Kind::kTable;
  std::vector<Member> members;  // kTable, in the order of the file
  std::vector<Node> items;      // kList
  OptionValue value;            // kValue: bool, int64_t, double or string
  Origin origin;
  // The text behind "=" of a --set value: what a string option takes, where `seed=007` reads as a
  // number.
  std::string typed;

  bool is_table() const { return kind == Kind::kTable; }
  const Node* find(std::string_view name) const;
  Node* find(std::string_view name);
  // The string at `name`, or empty.
  std::string string_at(std::string_view name) const;
  void erase(std::string_view name);
  // The list's element whose `name` is the given one.
  Node* named(std::string_view name);
};

struct Member {
  std::string name;
  SourcePosition where;  // of the key
  Node node;
};

// Parts of a key path and back: `model.blocks.0`, `plugins.pin."a.b"`. Empty where it is no path.
std::vector<std::string> split_key(std::string_view path);
std::string join_key(const std::string& path, const std::string& name);

// A bare or quoted key as TOML wants it.
std::string key_text(const std::string& name);

}  // namespace keyseat
