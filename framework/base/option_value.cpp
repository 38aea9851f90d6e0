#include "base/option_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

namespace keyseat {
namespace {

template <typename T>
std::string list_text(const std::vector<T>& items) {
  std::string text = "[";
  for (const T& item : items) {
    if (text.size() > 1) text += ", ";
    text += value_text(OptionValue(item));
  }
  return text + "]";
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  // TOML tells floats from integers by a point or an exponent.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Bounds print as integers wherever they are whole: 1, not 1.0.
std::string bound_text(double bound) {
  if (bound == std::floor(bound) && std::abs(bound) < 1e16) return fmt::format("{:.0f}", bound);
  return float_text(bound);
}

// A maximum of 2^53 and more only keeps integers exact: `in_full` for those who meet it.
std::string range_text(const OptionSpec& spec, bool in_full) {
  std::string text;
  if (spec.minimum && spec.maximum && (in_full || *spec.maximum < 0x1p53)) {
    text = fmt::format(" from {} to {}", bound_text(*spec.minimum), bound_text(*spec.maximum));
  } else if (spec.minimum) {
    text = fmt::format(" of at least {}", bound_text(*spec.minimum));
  } else if (spec.maximum) {
    text = fmt::format(" of at most {}", bound_text(*spec.maximum));
  }
  return text;
}

std::string choices_text(const OptionSpec& spec) {
  std::string text;
  for (const std::string& choice : spec.choices) {
    if (!text.empty()) text += ", ";
    text += quote(choice);
  }
  return text;
}

std::string given_text(const OptionValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return "is a value of another kind";
  std::string text = value_text(value);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  const char* kind = "";
  if (std::holds_alternative<std::string>(value)) kind = "the string ";
  if (std::holds_alternative<bool>(value)) kind = "the boolean ";
  return fmt::format("is {}{}", kind, text);
}

// "64MiB" -> 67108864. Units: B, KB, MB, GB, TB (powers of 1000) and KiB, MiB, GiB, TiB.
std::optional<int64_t> parse_size(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"KB", 1e3},        {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || std::isnan(number)) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = number * factor;
    if (std::abs(bytes) < 0x1p63) return static_cast<int64_t>(bytes);
    return bytes < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  }
  return std::nullopt;
}

bool in_range(const OptionSpec& spec, double value) {
  return std::isfinite(value) && (!spec.minimum || value >= *spec.minimum) &&
         (!spec.maximum || value <= *spec.maximum);
}

// Above the maximum of an integer or size; or an integer that no int64_t holds, which a --set gives
// as a string.
bool is_too_large(const OptionSpec& spec, const OptionValue& value) {
  if (!spec.maximum) return false;
  const auto above = [&](int64_t one) { return static_cast<double>(one) > *spec.maximum; };
  if (const auto* number = std::get_if<int64_t>(&value)) return above(*number);
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&value))
    return std::any_of(numbers->begin(), numbers->end(), above);
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return false;
  const auto size = parse_size(*text);
  return size && above(*size);
}

bool is_choice(const OptionSpec& spec, const std::string& value) {
  for (const std::string& choice : spec.choices) {
    if (choice == value) return true;
  }
  return false;
}

bool is_empty_list(const OptionValue& value) {
  const auto* ints = std::get_if<std::vector<int64_t>>(&value);
  const auto* floats = std::get_if<std::vector<double>>(&value);
  const auto* strings = std::get_if<std::vector<std::string>>(&value);
  return (ints && ints->empty()) || (floats && floats->empty()) || (strings && strings->empty());
}

// The value in the declared type, or nothing where the types do not fit.
std::optional<OptionValue> to_type(OptionType type, const OptionValue& value) {
  switch (type) {
    case OptionType::kBool:
      if (std::holds_alternative<bool>(value)) return value;
      break;
    case OptionType::kInt:
      if (std::holds_alternative<int64_t>(value)) return value;
      break;
    case OptionType::kFloat:
      if (std::holds_alternative<double>(value)) return value;
      if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
      break;
    case OptionType::kString:
    case OptionType::kPath:
    case OptionType::kEnum:
      if (std::holds_alternative<std::string>(value)) return value;
      break;
    case OptionType::kSize:
      if (std::holds_alternative<int64_t>(value)) return value;
      if (const auto* text = std::get_if<std::string>(&value)) {
        if (const auto bytes = parse_size(*text)) return *bytes;
      }
      break;
    case OptionType::kIntList:
      if (std::holds_alternative<std::vector<int64_t>>(value)) return value;
      if (is_empty_list(value)) return std::vector<int64_t>();
      break;
    case OptionType::kFloatList:
      if (std::holds_alternative<std::vector<double>>(value)) return value;
      if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
        return std::vector<double>(ints->begin(), ints->end());
      }
      if (is_empty_list(value)) return std::vector<double>();
      break;
    case OptionType::kStringList:
    case OptionType::kPathList:
      if (std::holds_alternative<std::vector<std::string>>(value)) return value;
      if (is_empty_list(value)) return std::vector<std::string>();
      break;
  }
  return std::nullopt;
}

bool acceptable(const OptionSpec& spec, const OptionValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return in_range(spec, static_cast<double>(*i));
  if (const auto* f = std::get_if<double>(&value)) return in_range(spec, *f);
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (spec.type == OptionType::kPath) return !text->empty();
    return spec.type != OptionType::kEnum || is_choice(spec, *text);
  }
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    for (const int64_t i : *ints) {
      if (!in_range(spec, static_cast<double>(i))) return false;
    }
  }
  if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
    for (const double f : *floats) {
      if (!in_range(spec, f)) return false;
    }
  }
  if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& text : *strings) {
      if (spec.type == OptionType::kPathList && text.empty()) return false;
      if (!spec.choices.empty() && !is_choice(spec, text)) return false;
    }
  }
  return true;
}

}  // namespace

std::string type_name(OptionType type) {
  switch (type) {
    case OptionType::kBool:
      return "bool";
    case OptionType::kInt:
      return "int";
    case OptionType::kFloat:
      return "float";
    case OptionType::kString:
      return "string";
    case OptionType::kPath:
      return "path";
    case OptionType::kEnum:
      return "enum";
    case OptionType::kSize:
      return "size";
    case OptionType::kIntList:
      return "list of ints";
    case OptionType::kFloatList:
      return "list of floats";
    case OptionType::kStringList:
      return "list of strings";
    case OptionType::kPathList:
      return "list of paths";
  }
  return "";
}

std::string requirement_text(const OptionSpec& spec, bool in_full) {
  switch (spec.type) {
    case OptionType::kBool:
      return "true or false";
    case OptionType::kInt:
      return "an integer" + range_text(spec, in_full);
    case OptionType::kFloat:
      return "a finite number" + range_text(spec, in_full);
    case OptionType::kString:
      return "a string";
    case OptionType::kPath:
      return "a path (a string that is not empty)";
    case OptionType::kEnum:
      return (spec.choices.size() == 1 ? "" : "one of ") + choices_text(spec);
    case OptionType::kSize:
      return "a size in bytes, such as 1048576 or \"1MiB\"" + range_text(spec, in_full);
    case OptionType::kIntList:
      return "a list of integers" + range_text(spec, in_full);
    case OptionType::kFloatList:
      return "a list of finite numbers" + range_text(spec, in_full);
    case OptionType::kStringList:
      return "a list of strings" + (spec.choices.empty() ? "" : " out of " + choices_text(spec));
    case OptionType::kPathList:
      return "a list of paths (strings that are not empty)";
  }
  return "";
}

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string value_text(const OptionValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (const auto* f = std::get_if<double>(&value)) return float_text(*f);
  if (const auto* text = std::get_if<std::string>(&value)) return quote(*text);
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) return list_text(*ints);
  if (const auto* floats = std::get_if<std::vector<double>>(&value)) return list_text(*floats);
  if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) {
    return list_text(*strings);
  }
  return "";
}

std::optional<std::string> convert_option(const OptionSpec& spec, OptionValue& value) {
  auto converted = to_type(spec.type, value);
  if (!converted || !acceptable(spec, *converted)) {
    std::string unit = spec.unit.empty() ? "" : " (" + spec.unit + ")";
    return fmt::format("must be {}{}, {}", requirement_text(spec, is_too_large(spec, value)), unit,
                       given_text(value));
  }
  value = std::move(*converted);
  return std::nullopt;
}

}  // namespace keyseat
