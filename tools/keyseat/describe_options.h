#pragma once
// A schema as text and as JSON, for `describe` of plugins and of the core.

#include <nlohmann/json.hpp>
#include <string>

#include "keyseat/options.h"

namespace keyseat::tool {

OptionLevel level_from_name(const std::string& name);  // of one of basic, tuning, developer
const char* level_name(OptionLevel level);

// Two lines per option up to `level`: name, type, default, range; and its sentence. Says how many
// options of higher levels are left out.
std::string options_text(const OptionSchema& schema, OptionLevel level);
nlohmann::json options_json(const OptionSchema& schema, OptionLevel level);

}  // namespace keyseat::tool
