// results.json: scalars, routing load, optimizer steps, checksums of the parameters.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/keyseat/parity/model_run.h"
#include "tools/keyseat/parity/report.h"

namespace keyseat::tool::parity {

void check_results(const nlohmann::json& results, const Chain& chain, const ModelRun& run,
                   Report& report);

}  // namespace keyseat::tool::parity
