// Loggers: one per plugin ("kind/name") and per part of the core, all on one sink to stderr.
//
// Sinks, format and levels belong to the host; plugins get their logger with PluginHost and never
// write to stdout, which carries results.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "keyseat/export.h"
#include "keyseat/status.h"

namespace spdlog {
class logger;
}

namespace keyseat {

// The logger of this name, made on the first call. Never destroyed, so that anything may log until
// the process ends.
KEYSEAT_API std::shared_ptr<spdlog::logger> logger(const std::string& name);

// Level of all loggers, existing and later: trace, debug, info (the default), warn, error or off.
// What all ranks would say alike at info, only the first one says. C3 for any other word.
KEYSEAT_API std::optional<Problem> set_log_level(const std::string& level, int64_t rank = 0);

}  // namespace keyseat
