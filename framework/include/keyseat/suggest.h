// "Did you mean": the nearest of the known names to a misspelt one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "keyseat/export.h"

namespace keyseat {

// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`; optimal string
// alignment form of the Damerau-Levenshtein distance.
KEYSEAT_API int edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest distance to `word`, if it is close enough to be a slip: at most a
// third of the longer word, at least one edit. Empty where none is. Ties: the first candidate.
KEYSEAT_API std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// `Did you mean "hidden_size"?`, or empty.
KEYSEAT_API std::string did_you_mean(std::string_view word,
                                     const std::vector<std::string>& candidates);

}  // namespace keyseat
