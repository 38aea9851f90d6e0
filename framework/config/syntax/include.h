// A configuration file with the files that its `base` keys name.
//
// `base = "FILE"` (or a list, later files over earlier ones) at the top of a file puts the whole of
// FILE below it; in a top-level table such as [model] it puts FILE's [model] below that table, and
// FILE may then hold nothing else. Paths are relative to the file that says `base`.
#pragma once

#include <optional>
#include <string>

#include "config/syntax/merge.h"
#include "config/syntax/tree.h"

namespace keyseat {

// Missing and unreadable files, syntax errors and loops become problems; the tree is returned with
// what could be read, or not at all where the file itself could not. `layer` as in read_toml().
std::optional<Node> read_config_file(const std::string& path, const std::string& layer,
                                     Problems& problems, Notes& notes);

}  // namespace keyseat
