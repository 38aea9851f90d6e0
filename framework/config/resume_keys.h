// What of a configuration a resumed run must share with the checkpoint.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "keyseat/config.h"

namespace keyseat {

// Every key that changes what is computed, with its value as TOML: model, data, optimizer, losses,
// seed and precision, not the layout over ranks, names, logging, evaluation or tuning options.
// Blocks go by name ("model.blocks.vision.options.depth").
std::map<std::string, std::string> resume_keys(const RunConfig& config);

// checkpoint.may_differ against the keys there are: a name that is none of them is C2.
Problems may_differ_problems(const RunConfig& config, const Options& checkpoint);

// Problems (C4), one per key in which `now` differs from `then` and that is not in `may_differ`.
Problems resume_differences(const std::map<std::string, std::string>& then, const RunConfig& now);

}  // namespace keyseat
