// Problems: what every expected failure of Keyseat is made of.
//
// Expected failures (a bad config, a missing plugin, a broken image) are values of type Problem,
// collected in a Problems list so that all of them can be shown at once. An Error (exception) ends
// the run and carries such a list. Assertions are never reachable by a config or by data.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "keyseat/export.h"

namespace keyseat {

// Stable codes; one documentation page each in sdk/docs/errors. The letter is the family and
// decides the exit status.
enum class Code {
  kP1NotFound,
  kP2NotAPlugin,
  kP3Incompatible,
  kP4Unloadable,
  kP5Untrusted,
  kP6EntryFailed,
  kP7Conflict,
  kC1Syntax,
  kC2Unknown,
  kC3Value,        // wrong type, out of range, missing
  kC4Combination,  // values that do not fit each other
  kC5RanksDisagree,
  kR1Cuda,
  kR2Communication,
  kR3Memory,
  kR4Contract,  // a plugin broke a rule of the contracts; the plugin is named
  kR5Numeric,   // NaN or infinity
  kR6Data,      // a record, image, checkpoint or fixture that cannot be used
  kR7File,      // a file or folder that cannot be read or written
};

KEYSEAT_API const char* code_name(Code code);  // "P1", "C2", ...
KEYSEAT_API int exit_status(Code code);        // by family: P 3, C 2, R 4

// A place in a text file; line and column count from 1, 0 means unknown.
struct SourcePosition {
  std::string file;
  int line = 0;
  int column = 0;
};

struct KEYSEAT_API Problem {
  Code code = Code::kR6Data;
  SourcePosition where;  // may be empty
  std::string what;      // what is wrong, one sentence, with the values of both sides
  std::string why;       // the reason or rule (may be empty)
  std::string remedy;    // what to try (may be empty)

  // "a.toml:14:1: C2 unknown option ... Did you mean ...?"
  std::string text() const;
};

using Problems = std::vector<Problem>;

KEYSEAT_API std::string problems_text(const Problems& problems);  // one per line

class KEYSEAT_API Error : public std::runtime_error {
 public:
  explicit Error(Problem problem);
  explicit Error(Problems problems);
  ~Error() override;  // anchored in libkeyseat.so, so that the type is one across libraries
  const Problems& problems() const { return problems_; }

 private:
  Problems problems_;
};

// A value or the problem that prevented it.
template <typename T>
class Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Problem problem) : state_(std::move(problem)) {}
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const T& value() const& { return std::get<0>(state_); }
  T& value() & { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  const Problem& problem() const { return std::get<1>(state_); }
  // The value, or Error thrown with the problem.
  T value_or_throw() && {
    if (!ok()) throw Error(problem());
    return std::get<0>(std::move(state_));
  }

 private:
  std::variant<T, Problem> state_;
};

}  // namespace keyseat
