// From checked options to typed settings, with the rules between the core's own keys (C4).
#pragma once

#include "config/syntax/tree.h"
#include "keyseat/config.h"

namespace keyseat {

// `options` is the bound table; problems are appended.
void read_run(Options& options, const ConfigRequest& request, RunSettings& run,
              ConfigSection& section, Problems& problems);
void read_model(const Options& options, const Node* table, ModelSettings& model,
                Problems& problems);
void read_comm(Options& options, RunConfig& config);
void read_schedule(const Options& options, int64_t run_steps, ScheduleSettings& schedule,
                   Problems& problems);
void read_measures(const Options& options, EvalSettings& eval, Problems& problems);
void read_checkpoint(Options& options, const RunSettings& run, CheckpointSettings& checkpoint,
                     ConfigSection& section);

// Names of blocks: usable as prefix of parameter names, and each only once.
void check_block_names(const std::vector<PluginChoice>& blocks,
                       const std::vector<SourcePosition>& names_at, Problems& problems);

}  // namespace keyseat
