// Against Hugging Face tokenizers and tiktoken through the cases of tests/fixtures/tokenizer.
// The cases with the real Qwen vocabulary run where KEYSEAT_QWEN_VOCABULARY names the file
// qwen.tiktoken (it ships in the PyPI package dashscope 2.0.2).
#include "keyseat/data/tokenizer.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

using keyseat::data::Encoding;
using keyseat::data::Tokenizer;
using nlohmann::json;

namespace {

const std::filesystem::path kFixtures = "tests/fixtures/tokenizer";

const Tokenizer& fixture() {
  static const Tokenizer tokenizer = Tokenizer::from_file(kFixtures).value_or_throw();
  return tokenizer;
}

std::vector<json> read_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

std::vector<int64_t> ids_of(const Tokenizer& tokenizer, std::string_view text,
                            bool allow_special = true) {
  return tokenizer.encode(text, allow_special).value_or_throw();
}

// The fixture tokenizer with one thing changed, as a file of its own.
class ChangedFile {
 public:
  explicit ChangedFile(const json& root) { std::ofstream(path_) << root; }
  ~ChangedFile() { std::filesystem::remove(path_); }
  keyseat::Result<Tokenizer> load() const { return Tokenizer::from_file(path_); }

 private:
  std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                ("keyseat_tokenizer_" + std::to_string(::getpid()) + ".json");
};

json fixture_json() { return json::parse(std::ifstream(kFixtures / "tokenizer.json")); }

}  // namespace

TEST_CASE("tokenizer: all text cases encode and decode exactly") {
  const std::vector<json> cases = read_lines(kFixtures / "text_cases.jsonl");
  REQUIRE(cases.size() == 126);
  for (const json& row : cases) {
    CAPTURE(row.at("text").dump());
    const auto text = row.at("text").get<std::string>();
    const Encoding encoding = fixture().encode_with_offsets(text).value_or_throw();
    CHECK(json(encoding.ids) == row.at("ids"));
    CHECK(fixture().decode(encoding.ids) == row.at("decoded").get<std::string>());
    CHECK(fixture().decode(encoding.ids, true) ==
          row.at("decoded_without_special").get<std::string>());
    const size_t end = encoding.ends.empty() ? 0 : encoding.ends.back();
    CHECK(end == fixture().normalize(text).value_or_throw().size());
  }
}

TEST_CASE("tokenizer: the cases with the real Qwen vocabulary") {
  const char* file = std::getenv("KEYSEAT_QWEN_VOCABULARY");
  if (file == nullptr) {
    MESSAGE("skipped: KEYSEAT_QWEN_VOCABULARY does not name a qwen.tiktoken");
    return;
  }
  const Tokenizer tokenizer = Tokenizer::from_file(file).value_or_throw();
  CHECK(tokenizer.vocab_size() == 151657);
  const std::vector<json> cases = read_lines(kFixtures / "qwen_vocab_cases.jsonl");
  REQUIRE(cases.size() == 100);
  for (const json& row : cases) {
    CAPTURE(row.at("text").dump());
    CHECK(json(ids_of(tokenizer, row.at("text").get<std::string>())) == row.at("ids"));
  }
}

TEST_CASE("tokenizer: special tokens, ids and texts") {
  CHECK(fixture().vocab_size() == 575);
  CHECK(fixture().token_to_id("<|im_end|>") == 570);
  CHECK(fixture().token_to_id(" ") == 220);
  CHECK_FALSE(fixture().token_to_id("<|nothing|>").has_value());
  CHECK(fixture().token_bytes(570) == "<|im_end|>");
  CHECK(fixture().token_bytes(9999).empty());
  CHECK(fixture().is_special(570));
  CHECK_FALSE(fixture().is_special(220));
  CHECK(ids_of(fixture(), "<|im_end|>") == std::vector<int64_t>{570});
  const std::vector<int64_t> spelt = ids_of(fixture(), "<|im_end|>", false);
  CHECK(spelt.size() > 1);
  CHECK(fixture().decode(spelt, true) == "<|im_end|>");
}

TEST_CASE("tokenizer: incomplete UTF-8 decodes to one U+FFFD per maximal subpart") {
  const std::vector<int64_t> ids = ids_of(fixture(), "\u00DE");  // two bytes, no merge
  REQUIRE(ids.size() == 2);
  CHECK(fixture().decode(std::span(ids).first(1)) == "\uFFFD");
  CHECK(fixture().decode(std::span(ids).last(1)) == "\uFFFD");
  const std::vector<int64_t> emoji = ids_of(fixture(), "\U00010348");
  REQUIRE(emoji.size() == 4);
  CHECK(fixture().decode(std::span(emoji).first(3)) == "\uFFFD");
  CHECK(fixture().decode(std::span(emoji).last(3)) == "\uFFFD\uFFFD\uFFFD");
  // An id without a token contributes nothing.
  const std::vector<int64_t> outside = {-1, 220, 575, int64_t{1} << 40};
  CHECK(fixture().decode(outside) == " ");
  CHECK(fixture().decode({}) == "");
}

TEST_CASE("tokenizer: bad UTF-8 is a problem that names the byte") {
  const std::pair<std::string, int> cases[] = {{"abc\xFF", 3},        {"\x80", 0},
                                               {"caf\xC3", 3},        {"\xC0\x80", 0},
                                               {"\xED\xA0\x80", 0},   {"\xF4\x90\x80\x80", 0},
                                               {"\xE2\x82", 0},       {"12345678\xF0\x9F\x98", 8},
                                               {"<|im_end|>\xFE", 10}};
  for (const auto& [text, offset] : cases) {
    const auto ids = fixture().encode(text);
    REQUIRE_FALSE(ids.ok());
    CHECK(ids.problem().code == keyseat::Code::kR6Data);
    CHECK(ids.problem().what.find("at byte " + std::to_string(offset) + " of") !=
          std::string::npos);
    CHECK_FALSE(fixture().normalize(text).ok());
  }
}

TEST_CASE("tokenizer: NUL bytes and very long pieces") {
  CHECK(fixture().decode(ids_of(fixture(), std::string_view("a\0b", 3))) ==
        std::string_view("a\0b", 3));
  for (const std::string& unit : {std::string("a"), std::string(" "), std::string("="),
                                  std::string("\n"), std::string("\u6a21"), std::string("'s ")}) {
    CAPTURE(unit);
    std::string text;
    while (text.size() < (1U << 18)) text += unit;
    CHECK(fixture().decode(ids_of(fixture(), text)) == text);
    CHECK(fixture().decode(ids_of(fixture(), text + "x")) == text + "x");
  }
}

TEST_CASE("tokenizer: Qwen3.5 keeps combining marks with their letters") {
  // The virama stands between two letters that a merge of the marks-as-letters vocabulary would
  // join; with a vocabulary that has such a token the two patterns give different ids.
  json root = fixture_json();
  const std::string spelling = "\u00E0\u00A4\u0137\u00E0\u00A5\u012F";  // bytes of U+0915 U+094D
  auto& model = root.at("model");
  const std::string left = "\u00E0\u00A4\u0137", right = "\u00E0\u00A5\u012F";
  int64_t id = 600;
  for (const auto& [a, b] : {std::pair<std::string, std::string>{"\u00E0\u00A4", "\u0137"},
                             {"\u00E0\u00A5", "\u012F"},
                             {left, right}}) {
    if (!model.at("vocab").contains(a + b)) model.at("vocab")[a + b] = id++;
    model.at("merges").push_back({a, b});
  }
  const int64_t joined = model.at("vocab").at(spelling).get<int64_t>();
  const auto pattern_of = [](json& tokenizer) -> json& {
    return tokenizer.at("pre_tokenizer").at("pretokenizers").at(0).at("pattern").at("Regex");
  };
  CHECK(pattern_of(root) == std::string(keyseat::data::qwen2_pattern()));
  const auto apart = ids_of(ChangedFile(root).load().value_or_throw(), "\u0915\u094D");
  CHECK(std::find(apart.begin(), apart.end(), joined) == apart.end());
  pattern_of(root) = std::string(keyseat::data::qwen3_5_pattern());
  CHECK(ids_of(ChangedFile(root).load().value_or_throw(), "\u0915\u094D") ==
        std::vector<int64_t>{joined});
}

TEST_CASE("tokenizer: added tokens, longest first, before or after NFC") {
  json root = fixture_json();
  const auto add = [&](const std::string& content, int64_t id, bool special, bool normalized) {
    root.at("added_tokens")
        .push_back(
            {{"id", id}, {"content", content}, {"special", special}, {"normalized", normalized}});
  };
  add("<|im_end|>!", 575, false, false);
  add("caf\u00E9", 576, false, true);
  const Tokenizer tokenizer = ChangedFile(root).load().value_or_throw();
  CHECK(tokenizer.vocab_size() == 577);
  CHECK(ids_of(tokenizer, "<|im_end|>!<|im_end|>") == std::vector<int64_t>{575, 570});
  CHECK(ids_of(tokenizer, "cafe\u0301") == std::vector<int64_t>{576});  // found after NFC
  CHECK(tokenizer.encode_with_offsets("cafe\u0301").value_or_throw().ends ==
        std::vector<size_t>{5});
  // Not special: matched without allow_special, kept by skip_special.
  CHECK(ids_of(tokenizer, "<|im_end|>!", false) == std::vector<int64_t>{575});
  const std::vector<int64_t> both = {575, 570};
  CHECK(tokenizer.decode(both, true) == "<|im_end|>!");
  CHECK(tokenizer.digest() != fixture().digest());
}

TEST_CASE("tokenizer: what would change the ids and is not done is refused by name") {
  const auto refusal = [](auto change) {
    json root = fixture_json();
    change(root);
    const auto loaded = ChangedFile(root).load();
    REQUIRE_FALSE(loaded.ok());
    CHECK(loaded.problem().code == keyseat::Code::kR6Data);
    CHECK_FALSE(loaded.problem().where.file.empty());
    return loaded.problem().what;
  };
  const auto mentions = [](const std::string& what, std::string_view word) {
    CAPTURE(what);
    CHECK(what.find(word) != std::string::npos);
  };
  mentions(refusal([](json& root) { root["normalizer"] = {{"type", "NFKC"}}; }), "NFKC");
  mentions(refusal([](json& root) { root["model"]["type"] = "Unigram"; }), "Unigram");
  mentions(refusal([](json& root) { root["model"]["byte_fallback"] = true; }), "byte_fallback");
  mentions(refusal([](json& root) { root["model"]["dropout"] = 0.1; }), "dropout");
  mentions(refusal([](json& root) {
             root["pre_tokenizer"] = {{"type", "Metaspace"}};
           }),
           "Metaspace");
  mentions(refusal([](json& root) {
             root["post_processor"] = {{"type", "TemplateProcessing"}};
           }),
           "TemplateProcessing");
  mentions(refusal([](json& root) { root["added_tokens"][0]["lstrip"] = true; }), "lstrip");
  mentions(refusal([](json& root) { root["added_tokens"][1]["id"] = 568; }), "twice");
  mentions(refusal([](json& root) { root["model"]["vocab"].erase("!"); }), "byte 33");
  mentions(refusal([](json& root) { root["model"]["merges"].push_back({"zz", "zz"}); }), "merge");
  mentions(refusal([](json& root) { root["model"]["vocab"]["huge"] = int64_t{1} << 40; }), "huge");
  mentions(refusal([](json& root) { root.erase("model"); }), "model");
  const auto with_pattern = [&](const char* pattern) {
    return refusal([&](json& root) {
      root["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern;
    });
  };
  mentions(with_pattern(R"(\w+)"), R"(\w)");
  mentions(with_pattern("(a"), "compile");
}

TEST_CASE("tokenizer: files that are missing, empty or of another kind") {
  CHECK(Tokenizer::from_file("tests/no_such_file").problem().code == keyseat::Code::kR7File);
  CHECK_FALSE(Tokenizer::from_file(kFixtures / "chat_template.jinja").ok());
  const auto prose = Tokenizer::from_file("LICENSE");
  REQUIRE_FALSE(prose.ok());
  CHECK(prose.problem().where.line > 0);
}

TEST_CASE("tokenizer: one tokenizer serves many threads") {
  const std::vector<json> cases = read_lines(kFixtures / "text_cases.jsonl");
  const Tokenizer tokenizer = Tokenizer::from_file(kFixtures).value_or_throw();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 20 * cases.size(); ++i) {
        const json& row = cases[(i * 7 + static_cast<size_t>(t)) % cases.size()];
        const auto ids = tokenizer.encode(row.at("text").get<std::string>());
        if (!ids || json(ids.value()) != row.at("ids")) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
