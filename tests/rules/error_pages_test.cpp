// Every error code has a page in sdk/docs/errors, and every page a code.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "keyseat/status.h"

namespace {

std::set<std::string> all_codes() {
  std::set<std::string> codes;
  for (int number = 0;; ++number) {
    const std::string name = keyseat::code_name(static_cast<keyseat::Code>(number));
    if (name == "R0") return codes;  // past the last one
    CHECK_MESSAGE(codes.insert(name).second, name, " is the name of two codes");
  }
}

}  // namespace

TEST_CASE("rule: every error code has a page that says what to do and the exit status") {
  const std::filesystem::path folder = "sdk/docs/errors";
  const std::set<std::string> codes = all_codes();
  CHECK(codes.size() >= 19);
  for (const std::string& code : codes) {
    const auto page = folder / (code + ".md");
    std::ifstream stream(page, std::ios::binary);
    REQUIRE_MESSAGE(stream.good(), page.string(), " is missing");
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    CHECK_MESSAGE(text.starts_with("# " + code + ": "), page.string());
    CHECK_MESSAGE(text.find("**What to do.**") != std::string::npos, page.string());
    const int status = code[0] == 'C' ? 2 : code[0] == 'P' ? 3 : 4;
    CHECK_MESSAGE((text.find("Exit status " + std::to_string(status)) != std::string::npos ||
                   text.find("Exit\nstatus " + std::to_string(status)) != std::string::npos),
                  page.string());
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    CHECK_MESSAGE(codes.contains(entry.path().stem().string()), entry.path().string(),
                  " is the page of no code");
  }
}
