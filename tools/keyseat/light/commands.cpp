#include "tools/keyseat/commands.h"

#include "tools/keyseat/light_commands.h"

namespace keyseat::tool {

const std::vector<CommandSummary>& command_summaries() {
  static const std::vector<CommandSummary> commands = {
      {"train", "Train as the configuration says", nullptr},
      {"launch", "Run a command on several ranks: launch -n N -- COMMAND ...", command_launch},
      {"eval", "Decode the held-out set greedily and report accuracy", nullptr},
      {"parity", "Compare with a folder of recorded results", nullptr},
      {"bench", "Time the training step on a recorded batch", nullptr},
      {"data", "Look into a data source: data inspect CONFIG", nullptr},
      {"config", "Print every value of a configuration and where it comes from", nullptr},
      {"chain", "Size up a model of any size: parameters, work, memory, a dry run", nullptr},
      {"list", "List the plugins that are found, usable or refused", command_list},
      {"describe", "Show what a plugin is and the options it takes", nullptr},
      {"check", "Check whether a plugin file can be used here", nullptr},
      {"version", "Print the versions of Keyseat and LibTorch", nullptr},
  };
  return commands;
}

}  // namespace keyseat::tool
