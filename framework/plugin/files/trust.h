// Whether a file may be loaded at all: loading is running its code.
//
// This guards against accidents and drift, not against somebody who can already write to the folder
// (between these checks and the load the file could still be exchanged).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "keyseat/status.h"

namespace keyseat {

// P5 where `file` is no regular file, where it or a folder it is reached through is writable by
// others, or where its owner is neither root nor the user. Symbolic links are followed; the place
// of the link is checked like that of the file.
std::optional<Problem> check_trust(const std::filesystem::path& file);

// Pins: SHA-256 by "kind/name". Where there is any pin they are the list of what may be loaded: a
// plugin without one, or with another digest, is P5.
std::optional<Problem> check_pin(const std::filesystem::path& file, const std::string& id,
                                 const std::map<std::string, std::string>& pins);

}  // namespace keyseat
