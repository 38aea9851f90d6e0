#include "data/added_tokens.h"

#include <algorithm>

namespace keyseat::data {

void AddedTokenMatcher::add(const AddedToken& token) {
  auto& tokens = by_first_byte_[static_cast<unsigned char>(token.content.front())];
  const auto place = std::find_if(tokens.begin(), tokens.end(), [&](const AddedToken& other) {
    return other.content.size() < token.content.size();
  });
  tokens.insert(place, token);
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view text, size_t from,
                                                                bool allow_special) const {
  for (size_t at = from; at < text.size(); ++at) {
    for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[at])]) {
      if (token.special && !allow_special) continue;
      if (text.compare(at, token.content.size(), token.content) == 0) {
        return Match{at, at + token.content.size(), token.id};
      }
    }
  }
  return std::nullopt;
}

}  // namespace keyseat::data
