#include "base/json_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/option_value.h"

namespace keyseat {
namespace {

constexpr size_t kShown = 24;  // bytes of the text in a message

// Line and column of the byte at `offset`.
SourcePosition position_of(const std::string& text, const std::string& file, size_t offset) {
  SourcePosition where{file, 1, 1};
  for (size_t i = 0; i < std::min(offset, text.size()); ++i) {
    const bool line_end = text[i] == '\n';
    where.line += line_end ? 1 : 0;
    where.column = line_end ? 1 : where.column + 1;
  }
  return where;
}

// The end of text[0, end), without a character cut in two.
std::string tail(const std::string& text, size_t end) {
  size_t begin = end > kShown ? end - kShown : 0;
  while (begin < end && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) ++begin;
  const std::string shown = text.substr(begin, end - begin);
  return quote(begin > 0 ? "..." + shown : shown);
}

// The part of `text` behind `from` and up to `to`; empty where there is none.
std::string between(const std::string& text, const std::string& from, const std::string& to) {
  const size_t begin = text.find(from);
  if (begin == std::string::npos) return "";
  const size_t start = begin + from.size(), end = text.find(to, start);
  return end == std::string::npos ? "" : text.substr(start, end - start);
}

}  // namespace

Result<nlohmann::json> parse_json(const std::string& text, const std::string& file) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    // Counted from 1: the last byte that was read.
    const size_t read = error.byte;
    if (text.find_first_not_of(" \t\r\n") == std::string::npos)
      return Problem{Code::kR6Data, {file, 0, 0}, "not valid JSON: the file is empty", "", ""};
    if (read > text.size()) {
      return Problem{Code::kR6Data, position_of(text, file, text.size()),
                     fmt::format("not valid JSON: it ends behind {}", tail(text, text.size())),
                     "The file is cut", ""};
    }
    const size_t at = read > 0 ? read - 1 : 0;
    const auto byte = static_cast<unsigned char>(text[at]);
    std::string what = fmt::format("not valid JSON: the character {} is not expected here",
                                   quote(std::string(1, text[at])));
    if (byte >= 0x80)
      what = fmt::format("not valid JSON: the byte {:#x} is not expected here", byte);
    return Problem{Code::kR6Data, position_of(text, file, at),
                   what + (at > 0 ? ", behind " + tail(text, at) : ""), "", ""};
  }
}

SourcePosition position_of_key(const std::string& text, const std::string& file,
                               const std::string& key) {
  const size_t at = text.find('"' + key + '"');
  return at == std::string::npos ? SourcePosition{file, 0, 0} : position_of(text, file, at);
}

std::string json_mismatch(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  if (const std::string key = between(text, "key '", "' not found"); !key.empty())
    return fmt::format("\"{}\" is missing", key);
  const std::string wanted = between(text, "type must be ", ", but is ");
  if (!wanted.empty()) {
    const size_t is = text.rfind("but is ");
    return fmt::format("a value must be of type {}, is of type {}", wanted, text.substr(is + 7));
  }
  if (text.find("array index") != std::string::npos) return "a list is too short";
  return "a value is not of the kind that is expected there";
}

}  // namespace keyseat
