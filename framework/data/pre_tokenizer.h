// Splits text into the pieces within which byte pairs may merge, by the model's regular expression.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keyseat/status.h"

namespace keyseat::data {

class PreTokenizer {
 public:
  // `pattern` in the syntax of Oniguruma, in which tokenizer.json files are written. Errors: R6 for
  // a pattern that does not compile or uses an escape whose meaning differs between that syntax and
  // ours.
  static Result<PreTokenizer> compile(std::string_view pattern);

  // Appends the end offset of each piece: every match is a piece, and so is every gap between
  // matches ("isolated"). `text` must be valid UTF-8. A problem only if matching exceeds its
  // limits.
  std::optional<Problem> split(std::string_view text, std::vector<size_t>& ends) const;

 private:
  explicit PreTokenizer(std::shared_ptr<const void> code) : code_(std::move(code)) {}
  std::shared_ptr<const void> code_;  // pcre2_code, read-only after compilation
};

}  // namespace keyseat::data
