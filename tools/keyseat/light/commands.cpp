#include "tools/keyseat/commands.h"

namespace keyseat::tool {

const std::vector<CommandSummary>& command_summaries() {
  static const std::vector<CommandSummary> commands = {
      {"version", "Print the versions of Keyseat and LibTorch", nullptr},
  };
  return commands;
}

}  // namespace keyseat::tool
