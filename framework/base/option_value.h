// Values of options: bringing a given value to its declared type, and writing it as TOML.
#pragma once

#include <optional>
#include <string>

#include "keyseat/options.h"

namespace keyseat {

// "int", "float", "list of strings": one word or phrase for `describe` and the documentation.
KEYSEAT_API std::string type_name(OptionType type);

// What a value has to be: "an integer of at least 1", "one of \"fp32\", \"bf16\"". `in_full`: with
// a maximum that only keeps integers exact, too, which hardly anybody meets.
KEYSEAT_API std::string requirement_text(const OptionSpec& spec, bool in_full = false);

// A value as TOML: 3, 1e-05, "text", [1, 2]. An unset value is the empty string.
KEYSEAT_API std::string value_text(const OptionValue& value);

// A TOML basic string: quotes, escapes for control characters.
KEYSEAT_API std::string quote(const std::string& text);

// Brings `value` to the type that `spec` declares: int to float, "64MiB" to bytes, an empty list to
// any list. Returns nothing if the value is acceptable, else one clause: `must be an integer of at
// least 1, is 0`. `value` is then unchanged.
KEYSEAT_API std::optional<std::string> convert_option(const OptionSpec& spec, OptionValue& value);

}  // namespace keyseat
