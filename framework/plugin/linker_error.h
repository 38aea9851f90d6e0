// Rewording what the dynamic linker says when it cannot load a library.
#pragma once

#include <filesystem>
#include <string>

#include "keyseat/status.h"

namespace keyseat {

// P4 that names the culprit: the missing library with where it was looked for and who needs it, or
// the undefined symbol in readable form. `text` is what dlerror() said.
Problem linker_problem(const std::string& id, const std::filesystem::path& file,
                       const std::string& text);

}  // namespace keyseat
