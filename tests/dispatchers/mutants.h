// The dispatchers compiled once more, with switches that make them wrong (keyseat/mutation.h).
#pragma once

#include <map>
#include <string>

#include "tests/dispatchers/layer.h"

namespace keyseat::test {

// As plugin_dispatcher, from this executable's own copy of the plugin's source.
MakeDispatcher mutant_dispatcher(const std::string& name,
                                 const std::map<std::string, OptionValue>& options = {});

}  // namespace keyseat::test
