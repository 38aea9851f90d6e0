#include "data/utf8.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace keyseat::data {
namespace {

// Length of the leading run of ASCII bytes from `at`, eight at a time: most text is ASCII.
size_t ascii_run(std::string_view bytes, size_t at) {
  const size_t start = at;
  while (at + 8 <= bytes.size()) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    if (word & 0x8080808080808080ULL) break;
    at += 8;
  }
  while (at < bytes.size() && static_cast<unsigned char>(bytes[at]) < 0x80) ++at;
  return at - start;
}

// Every character below U+0300 is its own NFC form and composes with none of its kind, and UTF-8
// writes those with bytes below 0xCC only. So most Latin text needs no normalisation pass.
bool surely_nfc(std::string_view text) {
  for (const char byte : text) {
    if (static_cast<unsigned char>(byte) >= 0xCC) return false;
  }
  return true;
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return {1, true};
  size_t continuations;
  if (lead >= 0xC2 && lead <= 0xDF) {
    continuations = 1;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    continuations = 2;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    continuations = 3;
  } else {
    return {1, false};
  }
  // The second byte has a narrower range after four leads: no overlong forms, no surrogates,
  // nothing past U+10FFFF.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i <= continuations; ++i) {
    if (at + i >= bytes.size() || byte(at + i) < low || byte(at + i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {continuations + 1, true};
}

size_t find_invalid_utf8(std::string_view bytes) {
  size_t at = 0;
  while (true) {
    at += ascii_run(bytes, at);
    if (at >= bytes.size()) return std::string_view::npos;
    const Utf8Step step = utf8_step(bytes, at);
    if (!step.valid) return at;
    at += step.length;
  }
}

std::string utf8_lossy(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const size_t run = ascii_run(bytes, at);
    text.append(bytes.substr(at, run));
    at += run;
    if (at >= bytes.size()) break;
    const Utf8Step step = utf8_step(bytes, at);
    text.append(step.valid ? bytes.substr(at, step.length) : std::string_view("\xEF\xBF\xBD"));
    at += step.length;
  }
  return text;
}

std::string to_nfc(std::string_view text) {
  if (surely_nfc(text)) return std::string(text);
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size < 0)
    throw std::bad_alloc();  // the only failures left for valid UTF-8 are memory and overflow
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

}  // namespace keyseat::data
