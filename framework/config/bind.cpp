#include "config/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/option_value.h"
#include "keyseat/suggest.h"

namespace keyseat {
namespace {

bool is_path(OptionType type) { return type == OptionType::kPath || type == OptionType::kPathList; }

std::string absolute_path(const std::string& folder, const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const auto joined = std::filesystem::path(folder) / path;
  const auto absolute = std::filesystem::absolute(joined, error);
  return (error ? joined : absolute).lexically_normal().string();
}

void make_absolute(OptionValue& value, const std::string& folder) {
  if (auto* path = std::get_if<std::string>(&value)) *path = absolute_path(folder, *path);
  if (auto* paths = std::get_if<std::vector<std::string>>(&value)) {
    for (std::string& path : *paths) path = absolute_path(folder, path);
  }
}

bool wants_text(OptionType type) {
  return type == OptionType::kString || type == OptionType::kPath || type == OptionType::kEnum;
}

// The list as one value, if its elements are of one kind; integers among floats become floats.
std::optional<OptionValue> list_value(const Node& list) {
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
  for (const Node& item : list.items) {
    if (item.kind != Node::Kind::kValue) return std::nullopt;
    if (const auto* i = std::get_if<int64_t>(&item.value)) {
      ints.push_back(*i);
      floats.push_back(static_cast<double>(*i));
    } else if (const auto* f = std::get_if<double>(&item.value)) {
      floats.push_back(*f);
    } else if (const auto* text = std::get_if<std::string>(&item.value)) {
      strings.push_back(*text);
    } else {
      return std::nullopt;
    }
  }
  const size_t count = list.items.size();
  if (ints.size() == count) return ints;
  if (floats.size() == count) return floats;
  if (strings.size() == count) return strings;
  return std::nullopt;
}

// The first element that is wrong by itself, so that the position is not just that of the list.
SourcePosition wrong_place(const Node& node, const OptionSpec& spec) {
  if (node.kind != Node::Kind::kList) return node.origin.where;
  for (const Node& item : node.items) {
    Node one;
    one.kind = Node::Kind::kList;
    one.items.push_back(item);
    auto value = list_value(one);
    if (!value || convert_option(spec, *value)) return item.origin.where;
  }
  return node.origin.where;
}

class Binder {
 public:
  Binder(const TableRules& rules, Problems& problems, Notes& notes)
      : rules_(rules), problems_(problems), notes_(notes) {}

  Options bind(const Node* table, const SourcePosition& where) {
    table_where_ = table != nullptr ? table->origin.where : where;
    options_.set_table(rules_.label, table_where_);
    if (table != nullptr && !table->is_table()) {
      problems_.push_back(
          {Code::kC3Value, table_where_,
           fmt::format("{} must be a table, is {}", rules_.label, node_kind_text(*table)), "",
           "Give the keys of the table, each with its value"});
      table = nullptr;
      no_table_ = true;
    }
    if (table != nullptr) {
      for (const Member& member : table->members) bind_member(member);
    }
    for (const OptionSpec& spec : rules_.schema) complete(spec, table != nullptr);
    return std::move(options_);
  }

 private:
  const OptionSpec* spec_of(const Member& member) {
    for (const OptionSpec& spec : rules_.schema) {
      if (spec.name == member.name) return &spec;
      const auto& old = spec.old_names;
      if (std::find(old.begin(), old.end(), member.name) == old.end()) continue;
      notes_.push_back(fmt::format("{}: {} in {} is now called {}; the old name will go",
                                   member.node.origin.text, quote(member.name), rules_.label,
                                   quote(spec.name)));
      return &spec;
    }
    return nullptr;
  }

  void bind_member(const Member& member) {
    const auto& others = rules_.subtables;
    if (std::find(others.begin(), others.end(), member.name) != others.end()) return;
    const OptionSpec* spec = spec_of(member);
    if (spec == nullptr) return unknown(member);
    if (std::find(given_.begin(), given_.end(), spec->name) != given_.end()) {
      problems_.push_back({Code::kC4Combination, member.where,
                           fmt::format("{} in {} is given twice, under its old and its new name",
                                       quote(spec->name), rules_.label),
                           "", "Keep " + quote(spec->name)});
      return;
    }
    given_.push_back(spec->name);
    if (auto value = value_of(*spec, member.node)) {
      const bool is_default = *value == default_of(*spec);
      options_.set(spec->name, {std::move(*value), is_default ? "default" : member.node.origin.text,
                                member.node.origin.where});
    }
  }

  std::optional<OptionValue> value_of(const OptionSpec& spec, const Node& node) {
    OptionValue value = node.value;
    bool convertible = node.kind == Node::Kind::kValue;
    if (node.kind == Node::Kind::kList) {
      auto list = list_value(node);
      convertible = list.has_value();
      if (list) value = std::move(*list);
    } else if (!node.typed.empty() && wants_text(spec.type) &&
               !std::holds_alternative<std::string>(value)) {
      value = node.typed;
      convertible = true;
    }
    std::optional<std::string> wrong;
    if (!convertible) {
      wrong = fmt::format("must be {}, is {}", requirement_text(spec), node_kind_text(node));
    } else {
      wrong = convert_option(spec, value);
    }
    if (wrong) {
      // Where only one value is allowed, its description says why.
      problems_.push_back({Code::kC3Value, wrong_place(node, spec),
                           fmt::format("{} in {} {}", quote(spec.name), rules_.label, *wrong),
                           spec.choices.size() == 1 ? spec.doc : "", suggestion(spec, node)});
      return std::nullopt;
    }
    if (is_path(spec.type)) make_absolute(value, node.origin.folder);
    return value;
  }

  static std::string suggestion(const OptionSpec& spec, const Node& node) {
    const auto* text = std::get_if<std::string>(&node.value);
    return text != nullptr && !spec.choices.empty() ? did_you_mean(*text, spec.choices) : "";
  }

  static OptionValue default_of(const OptionSpec& spec) {
    OptionValue value = spec.default_value;
    // A default may be written as an int for a float, or as "64MiB".
    if (!std::holds_alternative<std::monostate>(value)) convert_option(spec, value);
    if (is_path(spec.type)) make_absolute(value, "");
    return value;
  }

  // Missing options, and defaults where nothing acceptable was given.
  void complete(const OptionSpec& spec, bool table_given) {
    if (options_.entries().contains(spec.name)) return;
    OptionValue value = default_of(spec);
    if (!std::holds_alternative<std::monostate>(value)) {
      options_.set(spec.name, {std::move(value), "default", {}});
      return;
    }
    // A misspelt name has been reported already, and so has a bad value.
    const bool reported = std::find(given_.begin(), given_.end(), spec.name) != given_.end() ||
                          std::find(meant_.begin(), meant_.end(), spec.name) != meant_.end();
    if (!spec.optional && !reported && !rules_.missing_allowed && !no_table_) {
      problems_.push_back({Code::kC3Value, table_where_,
                           fmt::format("{} is missing in {}{}", quote(spec.name), rules_.label,
                                       table_given ? "" : ", which is not given"),
                           "It has no default",
                           fmt::format("Add {} = ..., {}", spec.name, requirement_text(spec))});
    }
    options_.set(spec.name, {std::monostate(), "default", {}});
  }

  void unknown(const Member& member) {
    std::vector<std::string> names = rules_.subtables;
    for (const OptionSpec& spec : rules_.schema) names.push_back(spec.name);
    std::string remedy = did_you_mean(member.name, names);
    if (!remedy.empty()) meant_.push_back(nearest(member.name, names));
    if (rules_.options_below != nullptr) {
      for (const OptionSpec& spec : *rules_.options_below) {
        if (spec.name == member.name) remedy = "It belongs into " + rules_.options_label + ".";
      }
    }
    if (remedy.empty()) {
      std::string known;
      for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
      remedy = names.empty() ? "No option is known here" : "Known: " + known + ".";
    }
    problems_.push_back(
        {Code::kC2Unknown, member.where,
         fmt::format("unknown {} {} in {}", member.node.is_table() ? "table" : "option",
                     quote(member.name), rules_.label),
         "", remedy});
  }

  const TableRules& rules_;
  Problems& problems_;
  Notes& notes_;
  Options options_;
  SourcePosition table_where_;
  bool no_table_ = false;  // something else stands in its place, so that nothing of it is missing
  std::vector<std::string> given_, meant_;
};

}  // namespace

Options bind_table(const Node* table, const SourcePosition& where, const TableRules& rules,
                   Problems& problems, Notes& notes) {
  return Binder(rules, problems, notes).bind(table, where);
}

std::string node_kind_text(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kTable:
      return "a table";
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kValue:
      break;
  }
  if (std::holds_alternative<std::string>(node.value)) return "a string";
  if (std::holds_alternative<int64_t>(node.value)) return "an integer";
  if (std::holds_alternative<double>(node.value)) return "a float";
  if (std::holds_alternative<bool>(node.value)) return "a boolean";
  return "a date or time";
}

}  // namespace keyseat
