#pragma once
// From the arguments of a command to its checked configuration.

#include "keyseat/config.h"
#include "plugin/config_plugins.h"
#include "tools/keyseat/config_arguments.h"

namespace keyseat::tool {

// Throws Error with every problem; prints notes to stderr as warnings. `blocks` are those that the
// command itself puts into the model.
RunConfig load_config(const ConfigArguments& arguments, ConfigPlugins& plugins,
                      ConfigUse use = ConfigUse::kTrain, std::vector<GivenBlock> blocks = {},
                      int64_t world = 0);

}  // namespace keyseat::tool
