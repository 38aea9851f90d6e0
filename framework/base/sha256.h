// SHA-256 (through Nettle): pins of plugins, digests of files and templates.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "keyseat/status.h"

namespace keyseat {

// 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);
// The same of a file, read in pieces. R7 where it cannot be read.
Result<std::string> sha256_hex_of_file(const std::filesystem::path& file);

}  // namespace keyseat
