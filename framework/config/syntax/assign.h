// --set a.b=c: the uppermost layer of a configuration.
#pragma once

#include <string>
#include <vector>

#include "config/syntax/merge.h"
#include "config/syntax/tree.h"

namespace keyseat {

// Applies assignments in order, `...plugin=` first, so that options given beside it stay. A value
// is a TOML value, else a string. An element of a list of tables is reached by its name or its
// index: model.blocks.vision.options.depth=2, model.blocks.0.options.depth=2. Relative paths start
// at the working folder. Bad assignments become problems (C1, C2, C3) and change nothing.
void apply_sets(Node& root, const std::vector<std::string>& sets, Problems& problems, Notes& notes);

}  // namespace keyseat
