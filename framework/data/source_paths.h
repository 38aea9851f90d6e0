// Which shards a `path` entry stands for.
#pragma once

#include <string>
#include <vector>

#include "keyseat/status.h"

namespace keyseat::data {

// A file; all files of a folder that end in `ending`; or those that fit a pattern with * or ?.
// Sorted by name. R7 where there is none.
Result<std::vector<std::string>> shards_of(const std::string& path, const std::string& ending);

}  // namespace keyseat::data
