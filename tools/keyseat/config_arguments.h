#pragma once
// The arguments of every command that takes a configuration: CONFIG, --overlay, --set,
// --plugin-dir.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace keyseat::tool {

struct ConfigArguments {
  std::string file;
  std::vector<std::string> overlays, sets, plugin_dirs;
  bool allow_abi_mismatch = false;

  // `positional`: whether the command takes CONFIG.
  void add_to(CLI::App& app, bool positional = true) {
    if (positional) app.add_option("CONFIG", file, "Configuration file (TOML)")->required();
    app.add_option("--overlay", overlays,
                   "A file whose values replace those of CONFIG; may be repeated");
    app.add_option("--set", sets, "a.b=c: sets one value; may be repeated")
        ->type_size(1)
        ->allow_extra_args(false);
    app.add_option("--plugin-dir", plugin_dirs,
                   "A folder searched for plugins first; may be repeated");
    app.add_flag("--allow-abi-mismatch", allow_abi_mismatch,
                 "For developers: load plugins of another build");
  }
};

}  // namespace keyseat::tool
