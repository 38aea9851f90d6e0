// outputs.safetensors: every recorded tensor has its counterpart, and the other way round.
#pragma once

#include "keyseat/chain.h"
#include "tools/keyseat/parity/model_run.h"
#include "tools/keyseat/parity/report.h"

namespace keyseat::tool::parity {

void check_outputs(const SafetensorsReader& outputs, const Chain& chain, const Batch& batch,
                   const TapRecorder& taps, const ModelRun& run, Report& report);

}  // namespace keyseat::tool::parity
