// The code of the author guide is the code of the template.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

std::vector<std::string> code_blocks(const std::string& text) {
  const std::string open = "```cpp\n", close = "```\n";
  std::vector<std::string> blocks;
  for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
    at += open.size();
    blocks.push_back(text.substr(at, text.find(close, at) - at));
  }
  return blocks;
}

}  // namespace

TEST_CASE("rule: every piece of code in the author guide stands in the template") {
  std::string code;
  for (const auto& entry :
       std::filesystem::directory_iterator("sdk/template/plugins/dispatcher/example")) {
    code += text_of(entry.path());
  }
  const auto blocks = code_blocks(text_of("sdk/docs/first_dispatcher.md"));
  CHECK(blocks.size() >= 5);
  for (const std::string& block : blocks) {
    CHECK_MESSAGE(code.find(block) != std::string::npos, block);
  }
}
