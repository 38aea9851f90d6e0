// The byte alphabet of GPT-2 and its descendants: each of the 256 bytes is written as one printable
// character, so that a vocabulary of byte strings can be stored as JSON text.
#pragma once

#include <string>
#include <string_view>

namespace keyseat::data {

// The bytes that `token` spells. A token with a character outside the alphabet (an added token with
// a space, say) stands for its own UTF-8 bytes, as in Hugging Face tokenizers. `token` must be
// valid UTF-8.
std::string bytes_of_token(std::string_view token);

}  // namespace keyseat::data
