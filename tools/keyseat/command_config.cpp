// keyseat config CONFIG: every resolved value with its origin.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tools/keyseat/command_line.h"
#include "tools/keyseat/load_config.h"
#include "tools/keyseat/tool_commands.h"

namespace keyseat::tool {

int command_config(int argc, const char* const* argv) {
  CLI::App app{
      "Prints every value of a configuration with its origin, as TOML that can be loaded again.",
      "keyseat config"};
  ConfigArguments arguments;
  arguments.add_to(app);
  bool json = false;
  app.add_flag("--json", json, "Print JSON: {\"value\": ..., \"origin\": ...} for every key");
  if (const auto status = end_of_command_line(app, argc, argv)) return *status;

  ConfigPlugins plugins(arguments.allow_abi_mismatch);
  const RunConfig config = load_config(arguments, plugins);
  fmt::print("{}\n", json ? config_json(config) : config_toml(config));
  return 0;
}

}  // namespace keyseat::tool
