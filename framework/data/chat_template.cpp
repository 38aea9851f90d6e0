#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "keyseat/data/chat.h"

namespace keyseat::data {
namespace {

using nlohmann::json;

// Templates whose output the renderer reproduces byte for byte: the ChatML template of the
// reference fixtures (tests/fixtures/tokenizer/chat_template.jinja). Add a digest only together
// with cases that prove it.
constexpr std::string_view kKnownTemplates[] = {
    "1dfd211f21562ed7ce3acf2a92b769427883f3f48557b3df7b0b8c7e8e16b694"};

// The template in a JSON file under the key chat_template, if there is one.
Result<std::optional<std::string>> read_json_template(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::optional<std::string>();
  std::ifstream file(path, std::ios::binary);
  const json root = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) {
    return Problem{.code = Code::kR7File,
                   .where = {.file = path.string()},
                   .what = "not a readable JSON object",
                   .why =
                       "it may hold the chat template of this checkpoint, which decides the text "
                       "of every sample",
                   .remedy = "restore the file from the checkpoint"};
  }
  const json value = root.value("chat_template", json());
  if (value.is_null()) return std::optional<std::string>();
  // Some checkpoints list several named templates; none of them is the built-in one then.
  return std::optional<std::string>(value.is_string() ? value.get<std::string>() : value.dump());
}

}  // namespace

std::optional<Problem> check_chat_template(std::string_view template_text,
                                           const SourcePosition& where) {
  const std::string digest = sha256_hex(template_text);
  for (const std::string_view known : kKnownTemplates) {
    if (digest == known) return std::nullopt;
  }
  return Problem{
      .code = Code::kR6Data,
      .where = where,
      .what = "this chat template is not known (digest " + digest + ")",
      .why = "only the built-in ChatML template is rendered, and another one is not approximated",
      .remedy =
          "use the chat_template.jinja in tests/fixtures/tokenizer, or remove the template if the "
          "model is to be trained with the built-in one"};
}

std::optional<Problem> check_chat_template_of(const std::filesystem::path& folder) {
  const std::filesystem::path jinja = folder / "chat_template.jinja";
  if (std::filesystem::exists(jinja)) {
    std::ifstream file(jinja, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return check_chat_template(text, {.file = jinja.string()});
  }
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    const Result<std::optional<std::string>> text = read_json_template(folder / name);
    if (!text) return text.problem();
    if (text.value()) return check_chat_template(*text.value(), {.file = (folder / name).string()});
  }
  return std::nullopt;
}

}  // namespace keyseat::data
