// Whether held-out data can be measured at all.
#pragma once

#include "keyseat/config.h"
#include "keyseat/interfaces/data.h"

namespace keyseat::train {

// Reads samples until one can be used for each measure that `eval` asks for. Throws R6, with counts
// by reason, where none of those that would be evaluated can be.
void require_usable(Data& data, const EvalSettings& eval);

}  // namespace keyseat::train
