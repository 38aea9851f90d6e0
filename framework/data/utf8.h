// UTF-8 checking, lossy decoding and NFC.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace keyseat::data {

// One step through bytes that may be bad UTF-8: a whole character (valid), or the maximal
// ill-formed subpart that the Unicode standard (section 3.9, table 3-7) replaces by one U+FFFD.
struct Utf8Step {
  size_t length;
  bool valid;
};
Utf8Step utf8_step(std::string_view bytes, size_t at);

// Byte offset of the first ill-formed sequence, or npos. Surrogates and overlong forms are
// ill-formed.
size_t find_invalid_utf8(std::string_view bytes);

std::string utf8_lossy(std::string_view bytes);

// `text` must be valid UTF-8; NUL bytes are ordinary characters. Known difference: Hugging Face
// tokenizers 0.23 carries older Unicode tables, so it leaves some rare sequences of combining marks
// unordered that Python's unicodedata and this function order (67 of 310,580 random strings).
std::string to_nfc(std::string_view text);

}  // namespace keyseat::data
