#pragma once
// From command-line arguments to a resolved configuration and the plugins it names.

#include <string>
#include <vector>

#include "keyseat/config.h"
#include "plugin/config_plugins.h"
#include "tools/keyseat/config_arguments.h"

namespace keyseat::tool {

// As load_config(); also installs the caching allocator (before the first tensor) and sets the log
// level. `first_sets` come before the user's own --set.
RunConfig resolve_or_throw(const ConfigArguments& arguments, ConfigPlugins& plugins, ConfigUse use,
                           std::vector<GivenBlock> blocks = {},
                           std::vector<std::string> first_sets = {});

// The blocks of a Hugging Face config.json, by what the block plugins say they serve.
std::vector<GivenBlock> blocks_of_hf_file(const std::string& file,
                                          const ConfigArguments& arguments);

// Creates run.dir. One that holds a run already is refused unless `overwrite`, which removes that
// run's files.
void prepare_run_dir(const RunConfig& config, bool overwrite);

}  // namespace keyseat::tool
