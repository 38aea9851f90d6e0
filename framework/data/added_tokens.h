// Added tokens: texts that are one token each and are cut out before anything else looks at the
// text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keyseat::data {

struct AddedToken {
  std::string content;
  int64_t id = 0;
  bool special = false;  // left out by decode(skip_special) and not matched without allow_special
  bool normalized = false;  // looked for after NFC instead of before
};

// Finds the leftmost added token of one set, the longest where several start at one place.
class AddedTokenMatcher {
 public:
  void add(const AddedToken& token);

  struct Match {
    size_t begin;
    size_t end;
    int64_t id;
  };
  std::optional<Match> find(std::string_view text, size_t from, bool allow_special) const;

 private:
  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // longest first
};

}  // namespace keyseat::data
