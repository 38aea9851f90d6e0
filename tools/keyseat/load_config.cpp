#include "tools/keyseat/load_config.h"

#include <fmt/format.h>

#include "base/launch_environment.h"

namespace keyseat::tool {

RunConfig load_config(const ConfigArguments& arguments, ConfigPlugins& plugins, ConfigUse use,
                      std::vector<GivenBlock> blocks, int64_t world) {
  const LaunchEnvironment environment = launch_environment();
  ResolvedConfig resolved = resolve_config({.file = arguments.file,
                                            .overlays = arguments.overlays,
                                            .sets = arguments.sets,
                                            .blocks = std::move(blocks),
                                            .plugin_dirs = arguments.plugin_dirs,
                                            .use = use,
                                            .world = world > 0 ? world : environment.world,
                                            .hosts = environment.hosts},
                                           plugins);
  if (environment.rank == 0) {
    for (const std::string& note : resolved.notes) fmt::print(stderr, "warning: {}\n", note);
  }
  if (!resolved.ok()) throw Error(std::move(resolved.problems));
  plugins.log_loaded();
  return std::move(resolved.config);
}

}  // namespace keyseat::tool
