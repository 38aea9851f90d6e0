// The resolved configuration as text: TOML that can be loaded again, and JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/option_value.h"
#include "config/syntax/tree.h"
#include "keyseat/config.h"

namespace keyseat {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string origin_text(const Options::Entry& entry) {
  if (entry.origin != "default" || entry.where.file.empty()) return entry.origin;
  return fmt::format("default, and given at {}:{}", entry.where.file, entry.where.line);
}

// Origins hold names of files; a line break in one would end the comment.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

std::string remark_of(const ConfigSection& section, const std::string& name) {
  const auto found = section.remarks.find(name);
  return found == section.remarks.end() ? "" : found->second;
}

std::string line_text(const ConfigSection& section, const OptionSpec& spec) {
  const auto& entry = section.options.entries().at(spec.name);
  const std::string remark = remark_of(section, spec.name);
  if (std::holds_alternative<std::monostate>(entry.value)) {
    return fmt::format("# {} is not set{}\n", key_text(spec.name),
                       remark.empty() ? "" : one_line(": " + remark));
  }
  std::string comment = origin_text(entry);
  if (!remark.empty()) comment += "; " + remark;
  return fmt::format("{} = {}  # {}\n", key_text(spec.name), value_text(entry.value),
                     one_line(comment));
}

OrderedJson value_json(const OptionValue& value) {
  return std::visit(
      [](const auto& held) -> OrderedJson {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>) {
          return nullptr;
        } else {
          return held;
        }
      },
      value);
}

// The object of a table: lists of tables are entered at their last element.
OrderedJson& object_at(OrderedJson& root, const ConfigSection& section) {
  OrderedJson* at = &root;
  for (const std::string& part : split_key(section.table)) {
    if (at->is_array()) at = &at->back();
    at = &(*at)[part];
  }
  if (!section.list_element) return *at;
  at->push_back(OrderedJson::object());
  return at->back();
}

}  // namespace

std::string config_toml(const RunConfig& config) {
  std::string text = "# Every value of the run and, behind it, where it comes from.\n";
  for (const ConfigSection& section : config.sections) {
    if (section.schema.empty()) continue;
    const char* form = section.list_element ? "\n[[{}]]\n" : "\n[{}]\n";
    text += fmt::format(fmt::runtime(form), section.table);
    for (const OptionSpec& spec : section.schema) text += line_text(section, spec);
  }
  return text;
}

std::string config_json(const RunConfig& config) {
  OrderedJson root = OrderedJson::object();
  for (const ConfigSection& section : config.sections) {
    if (section.schema.empty() && section.table != "plugins.pin") continue;
    OrderedJson& object = object_at(root, section);
    if (object.is_null()) object = OrderedJson::object();
    for (const OptionSpec& spec : section.schema) {
      const auto& entry = section.options.entries().at(spec.name);
      OrderedJson item = {{"value", value_json(entry.value)}, {"origin", origin_text(entry)}};
      const std::string remark = remark_of(section, spec.name);
      if (!remark.empty()) item["remark"] = remark;
      object[spec.name] = std::move(item);
    }
  }
  return root.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace keyseat
