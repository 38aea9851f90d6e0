// Loading one library and running its entry. With load.cpp, the only code that touches Boost.DLL.
#pragma once

#include <memory>

#include "keyseat/registry.h"
#include "plugin/files/inspect.h"

namespace keyseat {

// `plugin` has no refusals. P4 where the linker cannot load it (with what is missing), P6 where its
// entry fails. A file is loaded once per process; the second call returns the first result.
Result<std::shared_ptr<const LoadedPlugin>> load_library(const InspectedPlugin& plugin);

// The text of the exception being handled, without LibTorch's stack trace.
std::string current_exception_text();

}  // namespace keyseat
