// Two thousand damaged configurations: each loads or gets a code; none crashes or hangs.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "config/testing.h"
#include "keyseat/config.h"

namespace keyseat::testing {
namespace {

constexpr int kFiles = 2000;

std::string whole_config() {
  return std::string(complete_config()) + R"(more = ["a", "b"]
weights = [1.5, 2, 1e300]
[strategy]
plugin = "sharded"
options = { shard = 2, min_bytes = "1KiB" }
[optimizer]
clip_norm = 1.0
schedule = { kind = "wsd", warmup_steps = 1, decay_ratio = 0.25 }
[loss]
aux.weight = 0.01
z.weight = 1e-4
[eval.options]
blank = true
[plugins.pin]
"block/tower" = "00ff"
)";
}

class Mutator {
 public:
  explicit Mutator(std::string text) : text_(std::move(text)) {}

  std::string mutate(unsigned seed) {
    random_.seed(seed);
    std::string text = text_;
    for (size_t edits = 1 + below(6); edits > 0 && !text.empty(); --edits) edit(text);
    return text;
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }

  void edit(std::string& text) {
    static const std::string kPieces[] = {"[",
                                          "]",
                                          "[[",
                                          "\"\"\"",
                                          "'",
                                          "=",
                                          ".",
                                          "\n",
                                          "#",
                                          "{",
                                          "}",
                                          "inf",
                                          "nan",
                                          "-0",
                                          "1e999",
                                          "0x",
                                          "\\u00",
                                          "\xff",
                                          "\xed\xa0\x80",
                                          "9223372036854775808",
                                          "1979-05-27",
                                          "base = \"a.toml\"\n",
                                          "base = \"/dev/zero\"\n",
                                          "[[model.blocks]]\n",
                                          "plugin = 3\n",
                                          "[model]\n",
                                          std::string(300, '['),
                                          std::string(1, '\0'),
                                          std::string(2000, 'a') + ".b=1\n"};
    const size_t at = below(text.size());
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(random_());
        break;
      case 1:
        text.erase(at, 1 + below(12));
        break;
      case 2:
        text.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), below(60)));
        break;
      case 4:
        text.resize(at);
        break;
      default:
        swap_lines(text);
    }
  }

  void swap_lines(std::string& text) {
    const size_t a = text.find('\n', below(text.size()));
    const size_t b = a == std::string::npos ? a : text.find('\n', a + 1);
    if (b == std::string::npos) return;
    const std::string line = text.substr(a, b - a);
    text.erase(a, b - a);
    text.insert(text.find('\n', below(text.size())) == std::string::npos ? 0 : below(text.size()),
                line);
  }

  std::string text_;
  std::mt19937 random_;
};

TEST_CASE("mutation: damaged configurations load or get a code") {
  const ScratchFolder folder;
  FakeSchemas schemas;
  Mutator mutator(whole_config());
  int loaded = 0;
  std::map<std::string, int> codes;
  for (unsigned seed = 0; seed < kFiles; ++seed) {
    // A name of its own each: some file systems wait for the disk where a file is written anew.
    const std::string name = std::to_string(seed) + ".toml";
    const std::string file = folder.write(name, mutator.mutate(seed));
    const auto resolved = resolve_config({.file = file}, schemas);
    for (const Problem& problem : resolved.problems) {
      ++codes[code_name(problem.code)];
      CHECK_FALSE(problem.text().empty());
    }
    if (!resolved.ok()) continue;
    ++loaded;
    // What loads can be printed and loaded again.
    const std::string printed = folder.write("printed" + name, config_toml(resolved.config));
    const auto again = resolve_config({.file = printed}, schemas);
    INFO("seed " << seed << "\n" << problems_text(again.problems));
    CHECK(again.ok());
  }
  CHECK(loaded > 10);
  for (const char* code : {"C1", "C2", "C3", "C4", "P1"}) {
    INFO(code);
    CHECK(codes[code] > 0);
  }
}

}  // namespace
}  // namespace keyseat::testing
