// The committed option reference says what the plugins say.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

namespace {

std::map<std::string, std::string> pages(const std::filesystem::path& folder) {
  std::map<std::string, std::string> texts;
  if (!std::filesystem::exists(folder)) return texts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream stream(entry.path(), std::ios::binary);
    texts[entry.path().filename().string()] =
        std::string(std::istreambuf_iterator<char>(stream), {});
  }
  return texts;
}

}  // namespace

TEST_CASE("rule: the option reference in sdk/docs/options is up to date") {
  const auto build = std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
  const auto fresh = build / "option_pages";
  std::filesystem::remove_all(fresh);
  const std::string command =
      "'" + (build / "bin" / "keyseat").string() + "' describe --docs '" + fresh.string() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  const auto said = pages(fresh), committed = pages("sdk/docs/options");
  CHECK(said.contains("core.md"));
  for (const auto& [name, text] : said) {
    const auto found = committed.find(name);
    CHECK_MESSAGE((found != committed.end() && found->second == text), name,
                  ": run build/release/bin/keyseat describe --docs sdk/docs/options");
  }
  // A plugin may be missing in this build (CUDA), but not in the tree.
  for (const auto& [name, text] : committed) {
    const size_t kind_end = name.find('_');
    if (kind_end == std::string::npos) continue;
    const std::string folder = "plugins/" + name.substr(0, kind_end) + "/" +
                               std::filesystem::path(name.substr(kind_end + 1)).stem().string();
    CHECK_MESSAGE(std::filesystem::exists(folder), name, " describes no plugin of the tree");
  }
}
