// How every command reads its command line.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "tools/keyseat/commands.h"

namespace keyseat::tool {

// The exit status where the command is to end at once, its text printed: 0 behind --help, 2 where
// the command line is wrong (CLI11 itself would end with a status per kind of mistake).
inline std::optional<int> end_of_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageStatus;
  }
}

}  // namespace keyseat::tool
