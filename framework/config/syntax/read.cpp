// The only code that touches toml++.
#include "config/syntax/read.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "base/option_value.h"

namespace keyseat {
namespace {

constexpr uintmax_t kLargestFile = 16 << 20;

SourcePosition position(const toml::source_region& region, const std::string& file) {
  return {file, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
}

class Converter {
 public:
  Converter(std::string file, std::string folder, std::string layer)
      : file_(std::move(file)), folder_(std::move(folder)), layer_(std::move(layer)) {}

  Node convert(const toml::node& from) const {
    Node node;
    node.origin.where = position(from.source(), file_);
    node.origin.text = fmt::format("{}{}:{}", layer_, file_, node.origin.where.line);
    node.origin.folder = folder_;
    node.kind = Node::Kind::kValue;
    if (const auto* table = from.as_table()) {
      node.kind = Node::Kind::kTable;
      for (const auto& [key, value] : *table) {
        node.members.push_back(
            {std::string(key.str()), position(key.source(), file_), convert(value)});
      }
      // toml++ sorts by name; people think in the order they wrote.
      std::stable_sort(node.members.begin(), node.members.end(),
                       [](const Member& a, const Member& b) {
                         return std::pair(a.where.line, a.where.column) <
                                std::pair(b.where.line, b.where.column);
                       });
    } else if (const auto* array = from.as_array()) {
      node.kind = Node::Kind::kList;
      for (const auto& item : *array) node.items.push_back(convert(item));
    } else if (const auto* text = from.as_string()) {
      node.value = text->get();
    } else if (const auto* integer = from.as_integer()) {
      node.value = integer->get();
    } else if (const auto* number = from.as_floating_point()) {
      node.value = number->get();
    } else if (const auto* boolean = from.as_boolean()) {
      node.value = boolean->get();
    }
    return node;
  }

 private:
  std::string file_, folder_, layer_;
};

void set_origin(Node& node, const Origin& origin) {
  node.origin = origin;
  for (Node& item : node.items) set_origin(item, origin);
  for (Member& member : node.members) {
    member.where = origin.where;
    set_origin(member.node, origin);
  }
}

}  // namespace

std::optional<Node> read_toml(const std::string& text, const std::string& file,
                              const std::string& folder, const std::string& layer,
                              Problems& problems) {
  try {
    const toml::table table = toml::parse(std::string_view(text), std::string_view(file));
    Node root = Converter(file, folder, layer).convert(table);
    root.origin.where = {file, 0, 0};
    return root;
  } catch (const toml::parse_error& error) {
    problems.push_back({Code::kC1Syntax, position(error.source(), file),
                        fmt::format("not valid TOML: {}", error.description()),
                        "Nothing behind this place was read", "See toml.io for the syntax"});
  }
  return std::nullopt;
}

std::optional<Node> read_toml_value(const std::string& text, const Origin& origin) {
  // A line break would let the text hold further keys.
  if (text.find_first_of("\r\n") != std::string::npos) return std::nullopt;
  Problems ignored;
  auto root = read_toml("value = " + text, "", "", "", ignored);
  if (!root || root->members.size() != 1) return std::nullopt;
  Node node = std::move(root->members.front().node);
  set_origin(node, origin);
  return node;
}

std::optional<std::string> read_config_text(const std::string& path, const SourcePosition& asked_by,
                                            Problems& problems) {
  auto refuse = [&](const std::string& why) {
    problems.push_back({Code::kR7File, asked_by,
                        fmt::format("cannot read {}: {}", quote(path), why), "",
                        "Check the path; paths in a file are relative to that file"});
    return std::nullopt;
  };
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return refuse("no such file");
  if (!std::filesystem::is_regular_file(status)) return refuse("not a regular file");
  const auto size = std::filesystem::file_size(path, error);
  if (error) return refuse(error.message());
  if (size > kLargestFile) return refuse("larger than 16 MiB, so hardly a configuration");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return refuse("no permission to read it");
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

}  // namespace keyseat
