// Positions in messages.
#pragma once

#include <string>

#include "keyseat/status.h"

namespace keyseat {

// "run.toml:14:1", as far as it is known.
std::string position_text(const SourcePosition& where);

}  // namespace keyseat
