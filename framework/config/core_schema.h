// Look-ups in core_tables().
#pragma once

#include <string>
#include <vector>

#include "keyseat/config.h"

namespace keyseat {

const CoreTable* find_core_table(const std::string& name);

// Names of the tables directly inside a table: {"schedule"} for "optimizer".
std::vector<std::string> core_children(const std::string& name);

}  // namespace keyseat
