// tokenizer/: texts, conversations, and texts in the published vocabulary.
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "keyseat/data/chat.h"
#include "keyseat/data/tokenizer.h"
#include "tools/keyseat/parity/compare.h"
#include "tools/keyseat/parity/fixtures.h"

namespace keyseat::tool::parity {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

std::string shortened(const std::string& text) {
  constexpr size_t kShown = 160;
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

// Adds checks under "FILE CASE what".
class CaseChecks {
 public:
  CaseChecks(std::string name, Report& report) : name_(std::move(name)), report_(report) {}

  void same(const char* what, const json& computed, const json& recorded) {
    report_.checks.push_back(exact_check(
        name_ + " " + what, computed == recorded
                                ? ""
                                : fmt::format("is {}, recorded {}", shortened(text_of(computed)),
                                              shortened(text_of(recorded)))));
  }
  void failed(const char* what, const Problem& problem) {
    report_.checks.push_back(exact_check(name_ + " " + what, problem.text()));
  }

 private:
  // Decoded text may be no valid UTF-8 when it is wrong.
  static std::string text_of(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  std::string name_;
  Report& report_;
};

std::vector<json> read_json_lines(const fs::path& path) {
  std::ifstream stream(path);
  if (!stream) {
    throw Error(Problem{
        Code::kR7File, {path.string(), 0, 0}, "cannot read the file", std::strerror(errno), ""});
  }
  std::vector<json> lines;
  for (std::string line; std::getline(stream, line);) {
    if (line.empty()) continue;
    lines.push_back(json::parse(line, nullptr, false));
    if (lines.back().is_discarded()) {
      refuse_recording(path.string(), fmt::format("line {} is no valid JSON", lines.size()));
    }
  }
  return lines;
}

void check_texts(const fs::path& file, const data::Tokenizer& tokenizer, Report& report) {
  const std::vector<json> lines = read_json_lines(file);
  for (size_t i = 0; i < lines.size(); ++i) {
    CaseChecks checks(fmt::format("{} {}", file.filename().string(), i + 1), report);
    const auto ids = tokenizer.encode(lines[i].at("text").get<std::string>());
    if (!ids) {
      checks.failed("ids", ids.problem());
      continue;
    }
    checks.same("ids", ids.value(), lines[i].at("ids"));
    if (!lines[i].contains("decoded")) continue;  // the cases of the published vocabulary
    const auto recorded_ids = lines[i].at("ids").get<std::vector<int64_t>>();
    checks.same("decoded", tokenizer.decode(recorded_ids), lines[i].at("decoded"));
    checks.same("decoded_without_special", tokenizer.decode(recorded_ids, true),
                lines[i].at("decoded_without_special"));
  }
}

data::PatchGrid grid_of(const json& row) { return {row.at(0), row.at(1), row.at(2)}; }

data::Visuals visuals_of(const json& conversation, const json& processor) {
  data::Visuals visuals;
  visuals.merge_size = processor.at("merge_size");
  visuals.temporal_patch_size = processor.at("temporal_patch_size");
  for (const json& grid : conversation.at("image_grid_thw"))
    visuals.images.push_back(grid_of(grid));
  for (size_t i = 0; i < conversation.at("video_grid_thw").size(); ++i) {
    data::VideoSize video{grid_of(conversation.at("video_grid_thw").at(i)), {}};
    const int frames = conversation.at("video_sizes_thw").at(i).at(0);
    for (int frame = 0; frame < frames; ++frame)
      video.frame_seconds.push_back(frame / conversation.at("video_fps").get<double>());
    visuals.videos.push_back(std::move(video));
  }
  return visuals;
}

void check_conversation(const json& conversation, const json& processor,
                        const data::Tokenizer& tokenizer, Report& report) {
  CaseChecks checks("chat_cases.json " + conversation.at("name").get<std::string>(), report);
  const auto messages = data::parse_messages(conversation.at("messages"), {});
  if (!messages) return checks.failed("messages", messages.problem());
  const data::ChatOptions options{conversation.at("add_generation_prompt"),
                                  conversation.at("add_vision_id")};
  const data::Visuals visuals = visuals_of(conversation, processor);
  const std::string rendered = data::render(messages.value(), options);
  checks.same("rendered", rendered, conversation.at("rendered"));
  const auto expanded = data::expand(rendered, visuals);
  if (!expanded) return checks.failed("expanded", expanded.problem());
  checks.same("expanded", expanded.value(), conversation.at("expanded"));
  const auto tokens = data::encode_chat(tokenizer, messages.value(), options, visuals);
  if (!tokens) return checks.failed("ids", tokens.problem());
  checks.same("ids", tokens.value().ids, conversation.at("ids"));
  checks.same("mm_token_type_ids", tokens.value().token_type, conversation.at("mm_token_type_ids"));
}

void check_special_tokens(const json& recorded, const data::Tokenizer& tokenizer, Report& report) {
  for (const auto& [token, id] : recorded.items()) {
    const auto found = tokenizer.token_to_id(token);
    CaseChecks("chat_cases.json special_tokens", report)
        .same(token.c_str(), found ? json(*found) : json(), id);
  }
}

void check_published_vocabulary(const fs::path& file, const std::string& vocabulary,
                                Report& report) {
  if (vocabulary.empty()) {
    report.not_compared.push_back(
        {file.filename().string(),
         "needs the published vocabulary, which is not part of the folder: --vocab FILE", true});
    return;
  }
  check_texts(file, data::Tokenizer::from_file(vocabulary).value_or_throw(), report);
}

}  // namespace

Report tokenizer_parity(const ParityArguments& arguments) {
  const fs::path folder = arguments.folder;
  const data::Tokenizer tokenizer = data::Tokenizer::from_file(folder).value_or_throw();
  Report report;
  report.case_name = fs::canonical(folder).filename();
  const std::string chat_file = (folder / "chat_cases.json").string();
  const json chat = read_json_file(chat_file);
  try {
    check_texts(folder / "text_cases.jsonl", tokenizer, report);
    check_special_tokens(chat.at("special_tokens"), tokenizer, report);
    for (const json& conversation : chat.at("cases"))
      check_conversation(conversation, chat.at("image_processor"), tokenizer, report);
    check_published_vocabulary(folder / "qwen_vocab_cases.jsonl", arguments.vocabulary, report);
  } catch (const json::exception& error) {
    refuse_recording(arguments.folder,
                     fmt::format("not the expected content: {}", json_mismatch(error)));
  }
  const auto other_template = data::check_chat_template_of(folder);
  report.checks.push_back(
      exact_check("chat_template.jinja", other_template ? other_template->text() : ""));
  return report;
}

}  // namespace keyseat::tool::parity
