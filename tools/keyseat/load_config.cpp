#include "tools/keyseat/load_config.h"

#include <fmt/format.h>

namespace keyseat::tool {

RunConfig load_config(const ConfigArguments& arguments, ConfigPlugins& plugins, ConfigUse use,
                      std::vector<GivenBlock> blocks) {
  ResolvedConfig resolved = resolve_config({.file = arguments.file,
                                            .overlays = arguments.overlays,
                                            .sets = arguments.sets,
                                            .blocks = std::move(blocks),
                                            .plugin_dirs = arguments.plugin_dirs,
                                            .use = use},
                                           plugins);
  for (const std::string& note : resolved.notes) fmt::print(stderr, "warning: {}\n", note);
  if (!resolved.ok()) throw Error(std::move(resolved.problems));
  return std::move(resolved.config);
}

}  // namespace keyseat::tool
