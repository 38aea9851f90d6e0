#include "base/json_text.h"

#include <doctest/doctest.h>

namespace keyseat {
namespace {

using nlohmann::json;

std::string refusal(const std::string& text) {
  const auto parsed = parse_json(text, "a.json");
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.problem().text().find("json.exception") == std::string::npos);
  return parsed.problem().text();
}

TEST_CASE("JSON: what is wrong, where, and behind what") {
  CHECK(parse_json("{\"a\": [1, 2]}", "a.json").value()["a"][1] == 2);
  CHECK(refusal("{\n  \"step\": 5,\n}") ==
        "a.json:3:1: R6 not valid JSON: the character \"}\" is not expected here, behind "
        "\"{\\n  \\\"step\\\": 5,\\n\"");
  CHECK(refusal("").starts_with("a.json: R6 not valid JSON: the file is empty"));
  CHECK(refusal(" \n").starts_with("a.json: R6 not valid JSON: the file is empty"));
  CHECK(refusal("{\"key\": [1, 2")
            .starts_with("a.json:1:14: R6 not valid JSON: it ends behind \"{\\\"key\\\": [1, 2\""));
  CHECK(refusal("\xff").starts_with("a.json:1:1: R6 not valid JSON: the byte 0xff"));
  CHECK(refusal("hello").starts_with("a.json:1:1: R6 not valid JSON: the character \"h\""));
}

TEST_CASE("JSON: fields that are missing or of another kind") {
  const std::string text = "{\n \"a\": 1,\n \"b\": [\"x\"]}";
  const json root = json::parse(text);
  CHECK(json_field<int>(root, "a") == 1);
  const auto problem = [&](const auto& read) -> std::string {
    try {
      read();
    } catch (const JsonFieldError& error) {
      return error.key + ": " + error.what;
    }
    return "no error";
  };
  CHECK(problem([&] { json_field<int>(root, "c"); }) == "c: \"c\" is missing");
  CHECK(problem([&] { json_field<std::string>(root, "a"); }) ==
        "a: a value must be of type string, is of type number");
  CHECK(problem([&] { json_field<std::vector<int>>(root, "b"); }) ==
        "b: a value must be of type number, is of type string");
  CHECK(problem([&] { json_field<int>(root["b"], "a"); }) ==
        "a: a value is not of the kind that is expected there");
  const SourcePosition where = position_of_key(text, "a.json", "b");
  CHECK(where.line == 3);
  CHECK(where.column == 2);
  CHECK(position_of_key(text, "a.json", "none").line == 0);
}

}  // namespace
}  // namespace keyseat
