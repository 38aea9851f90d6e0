// JSON files that others wrote: what is wrong in them, in our words and with its place.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "keyseat/status.h"

namespace keyseat {

// R6 at line and column where `text`, the content of `file`, is no JSON.
Result<nlohmann::json> parse_json(const std::string& text, const std::string& file);

// Where `key` stands first in the text; the file as a whole where it does not.
SourcePosition position_of_key(const std::string& text, const std::string& file,
                               const std::string& key);

// What asking a parsed text for something else than it holds means: "\"step\" is missing".
std::string json_mismatch(const nlohmann::json::exception& error);

// A value that is missing or of another kind; thrown by json_field.
struct JsonFieldError {
  std::string key, what;
};

// object[key] as a T. Throws JsonFieldError.
template <typename T>
T json_field(const nlohmann::json& object, const char* key) {
  try {
    return object.at(key).get<T>();
  } catch (const nlohmann::json::exception& error) {
    throw JsonFieldError{key, json_mismatch(error)};
  }
}

}  // namespace keyseat
