#include "tools/keyseat/light/config_syntax.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include "config/syntax/include.h"

namespace keyseat::tool {
namespace {

// "run.toml" of "run.toml" and of "--overlay=run.toml".
std::string file_of(const std::string& argument) {
  const bool is_option = argument.starts_with("--");
  const size_t equals = argument.find('=');
  const std::string file =
      is_option && equals != std::string::npos ? argument.substr(equals + 1) : argument;
  std::error_code error;
  const bool is_config = file.ends_with(".toml") && std::filesystem::is_regular_file(file, error);
  return is_config ? file : "";
}

}  // namespace

int config_syntax_status(int argc, const char* const* argv) {
  Problems unreadable;
  for (int i = 1; i < argc; ++i) {
    const std::string file = file_of(argv[i]);
    if (file.empty()) continue;
    Problems problems;
    Notes notes;
    read_config_file(file, "", problems, notes);
    for (Problem& problem : problems) {
      // Everything else is reported together with what the plugins say.
      if (problem.code != Code::kC1Syntax && problem.code != Code::kR7File) continue;
      unreadable.push_back(std::move(problem));
    }
  }
  if (unreadable.empty()) return 0;
  std::fprintf(stderr, "%s\n", problems_text(unreadable).c_str());
  return exit_status(unreadable.front().code);
}

}  // namespace keyseat::tool
