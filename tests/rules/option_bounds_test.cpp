// Every number that a plugin can be given has a least and a greatest value, so that none can
// overflow what it is used for.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace {

nlohmann::json output_of(const std::string& arguments) {
  const auto build = std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
  const auto file = build / "option_bounds.json";
  const std::string command =
      "'" + (build / "bin" / "keyseat").string() + "' " + arguments + " >'" + file.string() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  std::ifstream stream(file);
  return nlohmann::json::parse(stream);
}

}  // namespace

TEST_CASE("rule: every numeric option of a plugin has bounds") {
  const std::set<std::string> numbers = {"int", "float", "size", "list of ints", "list of floats"};
  int checked = 0;
  const nlohmann::json list = output_of("list --json");
  for (const auto& plugin : list["plugins"]) {
    const auto id = plugin["kind"].get<std::string>() + "/" + plugin["name"].get<std::string>();
    const nlohmann::json described = output_of("describe " + id + " --json --level developer");
    for (const auto& option : described["options"]) {
      if (!numbers.contains(option["type"].get<std::string>())) continue;
      ++checked;
      CHECK_MESSAGE((option.contains("minimum") && option.contains("maximum")), id, ": ",
                    option["name"].get<std::string>(), " has no bounds");
    }
  }
  CHECK(checked > 80);
}
