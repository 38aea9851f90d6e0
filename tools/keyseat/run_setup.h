#pragma once
// From command-line arguments to a resolved configuration and the plugins it names.

#include <string>
#include <vector>

#include "keyseat/config.h"
#include "plugin/config_plugins.h"
#include "tools/keyseat/config_arguments.h"

namespace keyseat::tool {

// As load_config(); also installs the caching allocator (before the first tensor) and sets the log
// level. `first_sets` come before the user's own --set. `world`: ranks; 0: as launched.
RunConfig resolve_or_throw(const ConfigArguments& arguments, ConfigPlugins& plugins, ConfigUse use,
                           std::vector<GivenBlock> blocks = {},
                           std::vector<std::string> first_sets = {}, int64_t world = 0);

// Whether this process is the rank that writes files and prints results.
bool is_first_rank();

// The blocks of a Hugging Face config.json, by what the block plugins say they serve.
std::vector<GivenBlock> blocks_of_hf_file(const std::string& file,
                                          const ConfigArguments& arguments);

// What happens to a run.dir or checkpoint.dir that holds a run already. kOverwrite removes that
// run's files and checkpoints; kResume leaves them.
enum class UsedRunDir { kRefuse, kOverwrite, kResume };

// Creates run.dir. Error R7.
void prepare_run_dir(const RunConfig& config, UsedRunDir used);

bool has_checkpoint(const RunConfig& config);

}  // namespace keyseat::tool
