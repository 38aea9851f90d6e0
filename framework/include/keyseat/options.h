// Options: the typed keys a plugin declares once. The declaration yields parsing, validation,
// `keyseat describe`, the documentation page and the resolved dump. Declaring allocates nothing and
// needs no device.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/status.h"

namespace keyseat {

enum class OptionType {
  kBool,
  kInt,
  kFloat,
  kString,
  kPath,  // a string; relative paths are relative to the file that gives them (to the working
          // folder for --set)
  kEnum,  // a string out of `choices`
  kSize,  // bytes: an integer, or a string such as "64MiB"
  kIntList,
  kFloatList,
  kStringList,
  kPathList,
};

enum class OptionLevel { kBasic, kTuning, kDeveloper };
enum class OptionScope { kAllRanks, kPerRank };  // all_ranks: must be equal on every rank

using OptionValue =
    std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>>;

struct OptionSpec {
  std::string name;
  OptionType type = OptionType::kInt;
  OptionValue default_value;               // monostate: required, unless `optional`
  bool optional = false;                   // may stay unset; then Options::has() is false
  std::string unit;                        // "tokens", "bytes", "seconds"; may be empty
  std::string doc;                         // one sentence
  std::optional<double> minimum, maximum;  // inclusive; for each element of lists
  std::vector<std::string> choices;        // enum only
  OptionLevel level = OptionLevel::kBasic;
  OptionScope scope = OptionScope::kAllRanks;
  std::vector<std::string> old_names;  // accepted with a warning for one minor version
};

// Fluent construction: Option("hidden_size", OptionType::kInt).required().range(1, 1 <<
// 20).doc("...").
class KEYSEAT_API Option {
 public:
  Option(std::string name, OptionType type);
  Option& defaults_to(OptionValue value);
  Option& required();
  Option& optional();
  Option& range(double minimum, double maximum);
  Option& at_least(double minimum);
  Option& choices(std::vector<std::string> choices);
  Option& unit(std::string unit);
  Option& doc(std::string doc);
  Option& level(OptionLevel level);
  Option& scope(OptionScope scope);
  Option& old_name(std::string name);
  operator OptionSpec() const { return spec_; }

 private:
  OptionSpec spec_;
};

using OptionSchema = std::vector<OptionSpec>;

// The resolved values of one `options` table, each with its origin and position. Values are of the
// declared type (an int given for a float option has been converted); asking for an undeclared name
// or another type is R4.
class KEYSEAT_API Options {
 public:
  struct Entry {
    OptionValue value;
    std::string origin;    // "default", "file:line", "--set"
    SourcePosition where;  // of the value; empty for defaults
  };

  bool has(const std::string& name) const;  // declared and set
  bool get_bool(const std::string& name) const;
  int64_t get_int(const std::string& name) const;  // kInt and kSize
  double get_float(const std::string& name) const;
  const std::string& get_string(const std::string& name) const;  // kString, kPath, kEnum
  const std::vector<int64_t>& get_int_list(const std::string& name) const;
  const std::vector<double>& get_float_list(const std::string& name) const;
  const std::vector<std::string>& get_string_list(const std::string& name) const;

  // True where a file or --set gave a value other than the default: one that equals the default
  // conflicts with nothing, so that a printed configuration can be loaded again.
  bool given(const std::string& name) const;
  SourcePosition where(const std::string& name) const;
  // A problem of code C3 or C4 tied to a key: positioned at the value, or at the table where it is
  // a default.
  Problem problem(Code code, const std::string& name, std::string what, std::string why = "",
                  std::string remedy = "") const;

  void set(const std::string& name, Entry entry) { entries_[name] = std::move(entry); }
  void set_table(std::string label,
                 SourcePosition where);  // "[model.blocks.options] of block/qwen3_moe"
  const std::string& label() const { return label_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  const Entry& entry(const std::string& name) const;
  std::map<std::string, Entry> entries_;
  std::string label_;
  SourcePosition table_where_;
};

// Resolves plain values against a schema without a file (tests, hf_map): unknown, missing, mistyped
// and out-of-range values become problems. `origin` is put into every given entry.
KEYSEAT_API Options resolve_options(const OptionSchema& schema,
                                    const std::map<std::string, OptionValue>& values,
                                    const std::string& origin, Problems& problems);

}  // namespace keyseat
