#pragma once
// The commands of `keyseat`. Torch-free: bin/keyseat prints this table and runs the first kind
// itself; the others run in libkeyseat_tool.so. A new command is one file command_NAME.cpp and one
// line in commands.cpp.

#include <string_view>
#include <vector>

namespace keyseat::tool {

// The exit status of a wrong command line.
inline constexpr int kUsageStatus = 2;

// Gets the command line from the command's name on. Returns the exit status; may throw.
using CommandFunction = int (*)(int argc, const char* const* argv);

struct CommandSummary {
  std::string_view name, summary;
  CommandFunction light;  // torch-free, runs in bin/keyseat; null: runs in libkeyseat_tool.so
};

const std::vector<CommandSummary>& command_summaries();

}  // namespace keyseat::tool
