#include "config/given_blocks.h"

#include <string>
#include <utility>

namespace keyseat {
namespace {

Node value_node(const OptionValue& value, const Origin& origin) {
  Node node;
  node.origin = origin;
  node.kind = Node::Kind::kValue;
  auto list = [&](const auto& items) {
    node.kind = Node::Kind::kList;
    for (const auto& item : items) node.items.push_back(value_node(OptionValue(item), origin));
  };
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    list(*ints);
  } else if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
    list(*floats);
  } else if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) {
    list(*strings);
  } else {
    node.value = value;
  }
  return node;
}

Node table_node(const Origin& origin) {
  Node node;
  node.origin = origin;
  return node;
}

void add(Node& table, const std::string& name, Node node) {
  const SourcePosition where = node.origin.where;
  table.members.push_back({name, where, std::move(node)});
}

}  // namespace

Node blocks_tree(const std::vector<GivenBlock>& blocks) {
  Node root;
  if (blocks.empty()) return root;
  Node list;
  list.kind = Node::Kind::kList;
  for (const GivenBlock& block : blocks) {
    const Origin origin{block.where.file, block.where, ""};
    Node options = table_node(origin);
    for (const auto& [name, value] : block.options) add(options, name, value_node(value, origin));
    Node table = table_node(origin);
    add(table, "name", value_node(block.name, origin));
    add(table, "plugin", value_node(block.plugin, origin));
    add(table, "options", std::move(options));
    list.items.push_back(std::move(table));
    list.origin = origin;
  }
  Node model = table_node(list.origin);
  add(model, "blocks", std::move(list));
  add(root, "model", std::move(model));
  return root;
}

}  // namespace keyseat
