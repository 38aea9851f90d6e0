// Conversations against the cases that transformers' Qwen3VLProcessor made.
#include "keyseat/data/chat.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

using namespace keyseat::data;
using nlohmann::json;

namespace {

const std::filesystem::path kFixtures = "tests/fixtures/tokenizer";

const Tokenizer& fixture() {
  static const Tokenizer tokenizer = Tokenizer::from_file(kFixtures).value_or_throw();
  return tokenizer;
}

std::vector<Message> messages_of(const json& messages) {
  return parse_messages(messages, {}).value_or_throw();
}

PatchGrid grid_of(const json& row) { return {row.at(0), row.at(1), row.at(2)}; }

Visuals visuals_of(const json& row) {
  Visuals visuals;
  for (const json& grid : row.at("image_grid_thw")) visuals.images.push_back(grid_of(grid));
  for (size_t i = 0; i < row.at("video_grid_thw").size(); ++i) {
    VideoSize video{grid_of(row.at("video_grid_thw").at(i)), {}};
    const int frames = row.at("video_sizes_thw").at(i).at(0);
    for (int frame = 0; frame < frames; ++frame) {
      video.frame_seconds.push_back(frame / row.at("video_fps").get<double>());
    }
    visuals.videos.push_back(video);
  }
  return visuals;
}

// The texts that the mask selects, one after the other, "|" where a stretch ends.
std::string learned(const ChatTokens& tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.loss_mask[i]) text.append(fixture().token_bytes(tokens.ids[i]));
    if (tokens.loss_mask[i] && (i + 1 == tokens.ids.size() || !tokens.loss_mask[i + 1]))
      text += "|";
  }
  return text;
}

ChatTokens encode(const json& messages, const Visuals& visuals = {},
                  const ChatOptions& options = {}) {
  return encode_chat(fixture(), messages_of(messages), options, visuals).value_or_throw();
}

}  // namespace

TEST_CASE("chat: all cases render, expand and encode exactly") {
  const json cases = json::parse(std::ifstream(kFixtures / "chat_cases.json")).at("cases");
  REQUIRE(cases.size() == 9);
  for (const json& row : cases) {
    CAPTURE(row.at("name").get<std::string>());
    const std::vector<Message> messages = messages_of(row.at("messages"));
    const ChatOptions options{row.at("add_generation_prompt"), row.at("add_vision_id")};
    const Visuals visuals = visuals_of(row);
    const std::string rendered = render(messages, options);
    CHECK(rendered == row.at("rendered").get<std::string>());
    CHECK(expand(rendered, visuals).value_or_throw() == row.at("expanded").get<std::string>());
    const ChatTokens tokens = encode_chat(fixture(), messages, options, visuals).value_or_throw();
    CHECK(tokens.expanded == row.at("expanded").get<std::string>());
    CHECK(json(tokens.ids) == row.at("ids"));
    CHECK(json(tokens.token_type) == row.at("mm_token_type_ids"));
    CHECK(tokens.loss_mask.size() == tokens.ids.size());
  }
}

TEST_CASE("chat: the loss falls on what the assistant says and on its end") {
  const auto user = [](const json& content) {
    return json{{"role", "user"}, {"content", content}};
  };
  const auto assistant = [](const json& content) {
    return json{{"role", "assistant"}, {"content", content}};
  };
  CHECK(learned(encode({user("2 + 2"), assistant("4")})) == "4<|im_end|>|");
  CHECK(learned(encode({user("a"), assistant("b"), user("c"), assistant("d e")})) ==
        "b<|im_end|>|d e<|im_end|>|");
  CHECK(learned(encode(json::array({user("a")}), {}, {.add_generation_prompt = true})).empty());
  CHECK(learned(encode({user("a"), assistant("")})) == "<|im_end|>|");
  CHECK(learned(encode(json::array())).empty());
  // Accents that NFC joins move no border.
  CHECK(learned(encode({user("cafe\u0301"), assistant("cafe\u0301!"), user("e\u0301"),
                        assistant("no")})) == "caf\u00E9!<|im_end|>|no<|im_end|>|");
  // Visuals are given, not said; the text around them is.
  Visuals visuals;
  visuals.images = {{1, 2, 2}};
  const json parts = {{{"type", "text"}, {"text", "see"}},
                      {{"type", "image"}},
                      {{"type", "text"}, {"text", "here"}}};
  CHECK(learned(encode({user("a"), assistant(parts)}, visuals, {false, true})) ==
        "see|here<|im_end|>|");
}

TEST_CASE("chat: a token over header and text is not learned") {
  // The fixture vocabulary with a token for two line ends, which the real one has too.
  json root = json::parse(std::ifstream(kFixtures / "tokenizer.json"));
  root["model"]["vocab"]["\u010A\u010A"] = 600;
  root["model"]["merges"].push_back({"\u010A", "\u010A"});
  const auto path = std::filesystem::temp_directory_path() /
                    ("keyseat_chat_" + std::to_string(::getpid()) + ".json");
  std::ofstream(path) << root;
  const Tokenizer tokenizer = Tokenizer::from_file(path).value_or_throw();
  std::filesystem::remove(path);
  const std::vector<Message> messages = {{Role::kAssistant, {{PartType::kText, "\nb\n\n", {}}}}};
  const ChatTokens tokens = encode_chat(tokenizer, messages, {}, {}).value_or_throw();
  std::vector<std::pair<int64_t, int>> seen;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.ids[i] >= 570) seen.emplace_back(tokens.ids[i], tokens.loss_mask[i]);
  }
  // "assistant\n" + "\n": not learned; the one within the text and <|im_end|>: learned.
  CHECK(seen == std::vector<std::pair<int64_t, int>>{{600, 0}, {600, 1}, {570, 1}});
}

TEST_CASE("chat: labels are the next token where that is learned") {
  const ChatTokens tokens =
      encode({{{"role", "user"}, {"content", "2 + 2"}}, {{"role", "assistant"}, {"content", "4"}}});
  const std::vector<int64_t> labels = tokens.shifted_labels();
  REQUIRE(labels.size() == 16);
  for (size_t i = 0; i < labels.size(); ++i) {
    CHECK(labels[i] == (i == 12 ? 19 : i == 13 ? 570 : kIgnoredLabel));
  }
  CHECK(ChatTokens{}.shifted_labels().empty());
}

TEST_CASE("chat: times are printed as Python prints them") {
  const auto text_of = [](std::vector<double> seconds) {
    Visuals visuals;
    visuals.temporal_patch_size = 1;
    visuals.videos = {{{static_cast<int64_t>(seconds.size()), 2, 2}, seconds}};
    return expand("<|video_pad|>", visuals).value_or_throw();
  };
  const std::string group = "<|vision_start|><|video_pad|><|vision_end|>";
  const std::pair<double, std::string> cases[] = {
      {0.25, "0.2"}, {0.75, "0.8"}, {0.35, "0.3"},   {1.25, "1.2"}, {0.05, "0.1"},
      {0.15, "0.1"}, {0.0, "0.0"},  {59.95, "60.0"}, {0.45, "0.5"}, {3600.25, "3600.2"}};
  for (const auto& [seconds, printed] : cases) {
    CHECK(text_of({seconds}) == "<" + printed + " seconds>" + group);
  }
}

TEST_CASE("chat: an incomplete last frame group takes the time of its last frame") {
  Visuals visuals;
  visuals.videos = {{{2, 2, 2}, {0.0, 1.0, 2.0}}};
  const std::string group = "<|vision_start|><|video_pad|><|vision_end|>";
  CHECK(expand("<|video_pad|>", visuals).value_or_throw() ==
        "<0.5 seconds>" + group + "<2.0 seconds>" + group);
}

TEST_CASE("chat: placeholders and visuals must agree") {
  const auto problem_of = [](const std::string& text, const Visuals& visuals) {
    const auto expanded = expand(text, visuals);
    REQUIRE_FALSE(expanded.ok());
    CHECK(expanded.problem().code == keyseat::Code::kR6Data);
    return expanded.problem().what;
  };
  const auto with_images = [](std::vector<PatchGrid> images) {
    Visuals visuals;
    visuals.images = std::move(images);
    return visuals;
  };
  const auto mentions = [](const std::string& what, std::string_view words) {
    CAPTURE(what);
    CHECK(what.find(words) != std::string::npos);
  };
  mentions(problem_of("<|image_pad|><|image_pad|>", with_images({{1, 2, 2}})),
           "2 <|image_pad|> placeholders, but 1 images");
  mentions(problem_of("no image", with_images({{1, 2, 2}})), "0 <|image_pad|> placeholders");
  mentions(problem_of("<|video_pad|>", {}), "1 <|video_pad|> placeholders, but 0 videos");
  mentions(problem_of("<|image_pad|>", with_images({{1, 3, 2}})), "1 x 3 x 2");
  mentions(problem_of("<|image_pad|>", with_images({{1, 0, 2}})), "1 x 0 x 2");
  mentions(problem_of("<|image_pad|>", with_images({{2, 2, 2}})), "2 frame groups");
  Visuals video;
  video.videos = {{{2, 2, 2}, {0.0, 0.5}}};
  mentions(problem_of("<|video_pad|>", video), "2 frames");
  // A text that spells a placeholder out counts as one, as in transformers.
  const auto chat = encode_chat(
      fixture(), messages_of({{{"role", "user"}, {"content", "<|image_pad|>"}}}), {}, {});
  CHECK_FALSE(chat.ok());
}

TEST_CASE("chat: records of another shape are refused") {
  const auto what_of = [](const char* text) {
    const auto parsed = parse_messages(json::parse(text), {"set.jsonl", 7, 0});
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.problem().where.line == 7);
    return parsed.problem().what;
  };
  CHECK(what_of("{}").find("array") != std::string::npos);
  CHECK(what_of(R"([1])").find("message 0") != std::string::npos);
  CHECK(what_of(R"([{"role": "tool", "content": ""}])").find("role") != std::string::npos);
  CHECK(what_of(R"([{"role": "user"}])").find("content") != std::string::npos);
  CHECK(what_of(R"([{"role": "user", "content": "", "tool_calls": []}])").find("tool_calls") !=
        std::string::npos);
  const auto part = [&](const std::string& text) {
    return what_of((R"([{"role": "user", "content": [)" + text + "]}]").c_str());
  };
  CHECK(part("\"text\"").find("part 0") != std::string::npos);
  CHECK(part(R"({"type": "audio"})").find("type") != std::string::npos);
  CHECK(part(R"({"type": "text"})").find("text") != std::string::npos);
  CHECK(part(R"({"type": "text", "text": 3})").find("string") != std::string::npos);
  CHECK(part(R"({"type": "image", "image": {}})").find("string") != std::string::npos);
  CHECK(part(R"({"type": "image", "max_pixels": 9})").find("max_pixels") != std::string::npos);
  const auto good = messages_of(json::parse(
      R"([{"role": "user", "content": [{"type": "image", "image": "a.png", "text": null}]}])"));
  CHECK(good.at(0).parts.at(0).source == "a.png");
}

TEST_CASE("chat: bad UTF-8 in a message is a problem, not a crash") {
  const std::vector<Message> messages = {{Role::kUser, {{PartType::kText, "abc\xFF", {}}}}};
  const auto chat = encode_chat(fixture(), messages, {}, {});
  REQUIRE_FALSE(chat.ok());
  CHECK(chat.problem().what.find("bad UTF-8") != std::string::npos);
}

TEST_CASE("chat: only the known template is accepted") {
  std::ifstream file(kFixtures / "chat_template.jinja", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  CHECK_FALSE(check_chat_template(text, {}).has_value());
  const auto problem = check_chat_template(text + " ", {"folder/chat_template.jinja", 0, 0});
  REQUIRE(problem.has_value());
  CHECK(problem->code == keyseat::Code::kR6Data);
  CHECK(problem->what.find("digest") != std::string::npos);
  CHECK(check_chat_template("", {}).has_value());

  CHECK_FALSE(check_chat_template_of(kFixtures).has_value());
  const auto folder =
      std::filesystem::temp_directory_path() / ("keyseat_chat_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  CHECK_FALSE(check_chat_template_of(folder).has_value());  // no template at all
  const auto config = folder / "tokenizer_config.json";
  std::ofstream(config) << json{{"chat_template", text}};
  CHECK_FALSE(check_chat_template_of(folder).has_value());
  std::ofstream(config) << json{{"chat_template", "{{ messages }}"}};
  CHECK(check_chat_template_of(folder).has_value());
  std::ofstream(config) << "{";
  CHECK(check_chat_template_of(folder)->code == keyseat::Code::kR7File);
  std::ofstream(folder / "chat_template.jinja") << "other";
  CHECK(check_chat_template_of(folder)->code == keyseat::Code::kR6Data);
  std::filesystem::remove_all(folder);
}
