#include "tools/keyseat/describe_options.h"

#include <fmt/format.h>

#include "base/option_value.h"

namespace keyseat::tool {
namespace {

std::string default_text(const OptionSpec& spec) {
  if (spec.default_value.index() != 0) return "default " + value_text(spec.default_value);
  return spec.optional ? "optional" : "required";
}

nlohmann::json value_json(const OptionValue& value) {
  return std::visit(
      [](const auto& given) -> nlohmann::json {
        if constexpr (std::is_same_v<std::decay_t<decltype(given)>, std::monostate>) {
          return nullptr;
        } else {
          return given;
        }
      },
      value);
}

}  // namespace

OptionLevel level_from_name(const std::string& name) {
  if (name == "developer") return OptionLevel::kDeveloper;
  return name == "tuning" ? OptionLevel::kTuning : OptionLevel::kBasic;
}

const char* level_name(OptionLevel level) {
  switch (level) {
    case OptionLevel::kBasic:
      return "basic";
    case OptionLevel::kTuning:
      return "tuning";
    case OptionLevel::kDeveloper:
      return "developer";
  }
  return "";
}

std::string options_text(const OptionSchema& schema, OptionLevel level) {
  std::string text;
  size_t hidden = 0;
  for (const OptionSpec& spec : schema) {
    if (spec.level > level) {
      ++hidden;
      continue;
    }
    text += fmt::format("  {}: {}, {}", spec.name, requirement_text(spec), default_text(spec));
    if (!spec.unit.empty()) text += ", in " + spec.unit;
    if (spec.level != OptionLevel::kBasic)
      text += fmt::format(", level {}", level_name(spec.level));
    if (spec.scope == OptionScope::kPerRank) text += ", may differ between ranks";
    for (const std::string& old_name : spec.old_names) text += ", once called " + old_name;
    text += fmt::format("\n      {}\n", spec.doc);
  }
  if (schema.empty()) text += "  (no options)\n";
  if (hidden > 0) text += fmt::format("  ({} more with a higher --level)\n", hidden);
  return text;
}

nlohmann::json options_json(const OptionSchema& schema, OptionLevel level) {
  nlohmann::json options = nlohmann::json::array();
  for (const OptionSpec& spec : schema) {
    if (spec.level > level) continue;
    nlohmann::json option = {{"name", spec.name},
                             {"type", type_name(spec.type)},
                             {"default", value_json(spec.default_value)},
                             {"required", spec.default_value.index() == 0 && !spec.optional},
                             {"doc", spec.doc},
                             {"unit", spec.unit},
                             {"level", level_name(spec.level)},
                             {"per_rank", spec.scope == OptionScope::kPerRank},
                             {"old_names", spec.old_names}};
    if (spec.minimum) option["minimum"] = *spec.minimum;
    if (spec.maximum) option["maximum"] = *spec.maximum;
    if (!spec.choices.empty()) option["choices"] = spec.choices;
    options.push_back(std::move(option));
  }
  return options;
}

}  // namespace keyseat::tool
