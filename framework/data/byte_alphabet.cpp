#include "data/byte_alphabet.h"

#include <array>

namespace keyseat::data {
namespace {

// All characters of the alphabet lie below U+0144: printable Latin-1 stands for itself, the 68
// other bytes follow from U+0100 on in ascending order. The table maps characters back to bytes; -1
// is not in the alphabet.
constexpr int kCharacters = 0x144;

constexpr std::array<int, kCharacters> make_bytes_by_character() {
  std::array<int, kCharacters> bytes{};
  for (int& byte : bytes) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    bytes[static_cast<size_t>(printable ? byte : next++)] = byte;
  }
  return bytes;
}

constexpr auto kByteByCharacter = make_bytes_by_character();

}  // namespace

std::string bytes_of_token(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const unsigned lead = static_cast<unsigned char>(token[at]);
    unsigned character = lead;
    size_t length = 1;
    if (lead >= 0x80) {
      if (lead > 0xDF || at + 1 >= token.size())
        return std::string(token);  // three bytes and more: past U+07FF
      character = ((lead & 0x1F) << 6) | (static_cast<unsigned char>(token[at + 1]) & 0x3F);
      length = 2;
    }
    if (character >= kCharacters || kByteByCharacter[character] < 0) return std::string(token);
    bytes.push_back(static_cast<char>(kByteByCharacter[character]));
    at += length;
  }
  return bytes;
}

}  // namespace keyseat::data
