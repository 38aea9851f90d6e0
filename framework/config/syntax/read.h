// TOML text to a tree with positions.
#pragma once

#include <optional>
#include <string>

#include "config/syntax/tree.h"

namespace keyseat {

// `file` is the name shown in positions, `folder` where its relative paths start, `layer` what
// comes before the position in origins: "" or "overlay ". A syntax error is one C1 problem: TOML
// cannot be read past it.
std::optional<Node> read_toml(const std::string& text, const std::string& file,
                              const std::string& folder, const std::string& layer,
                              Problems& problems);

// A TOML value, as after "=" in a file; nothing where the text is not exactly one.
std::optional<Node> read_toml_value(const std::string& text, const Origin& origin);

// The text of a regular file of at most 16 MiB; else R7.
std::optional<std::string> read_config_text(const std::string& path, const SourcePosition& asked_by,
                                            Problems& problems);

}  // namespace keyseat
