// Plugins that are used where a configuration names none.
#pragma once

#include <string>

namespace keyseat {

// The plugin of a kind, or empty where one must be named (block, data) or where the choice depends
// on the world (comm: default_comm()).
std::string default_plugin(const std::string& kind);

}  // namespace keyseat
