// The README says truly which code has been compiled and never run.
#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

TEST_CASE("rule: the README's table of code that has never been run is the generated one") {
  FILE* const pipe = popen("tools/compiled_only", "r");
  REQUIRE(pipe != nullptr);
  std::string table;
  char buffer[4096];
  for (size_t got = 0; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    table.append(buffer, got);
  REQUIRE(pclose(pipe) == 0);
  CHECK(table.find("plugins/comm/nccl") != std::string::npos);
  CHECK(table.find("framework/cuda") != std::string::npos);
  std::ifstream stream("README.md", std::ios::binary);
  const std::string readme(std::istreambuf_iterator<char>(stream), {});
  CHECK_MESSAGE(readme.find("<!-- tools/compiled_only -->\n" + table + "<!-- end -->") !=
                    std::string::npos,
                "run tools/compiled_only --write");
}
