#include "keyseat/options.h"

#include <fmt/format.h>

#include "base/option_value.h"
#include "keyseat/suggest.h"

namespace keyseat {

Option::Option(std::string name, OptionType type) {
  spec_.name = std::move(name);
  spec_.type = type;
}
Option& Option::defaults_to(OptionValue value) {
  // The default is held in the declared type, as given values are: 1 for a float option is 1.0.
  // Range and choices may be declared after it, so they are not checked here.
  OptionSpec type_only;
  type_only.type = spec_.type;
  if (spec_.type == OptionType::kEnum) type_only.type = OptionType::kString;
  if (const auto wrong = convert_option(type_only, value)) {
    throw Error(Problem{Code::kR4Contract,
                        {},
                        fmt::format("the declared default of option \"{}\" {}", spec_.name, *wrong),
                        "",
                        "Correct the plugin's options()."});
  }
  spec_.default_value = std::move(value);
  return *this;
}
Option& Option::required() {
  spec_.default_value = std::monostate();
  spec_.optional = false;
  return *this;
}
Option& Option::optional() {
  spec_.optional = true;
  return *this;
}
Option& Option::range(double minimum, double maximum) {
  spec_.minimum = minimum;
  spec_.maximum = maximum;
  return *this;
}
Option& Option::at_least(double minimum) {
  spec_.minimum = minimum;
  return *this;
}
Option& Option::choices(std::vector<std::string> choices) {
  spec_.choices = std::move(choices);
  return *this;
}
Option& Option::unit(std::string unit) {
  spec_.unit = std::move(unit);
  return *this;
}
Option& Option::doc(std::string doc) {
  spec_.doc = std::move(doc);
  return *this;
}
Option& Option::level(OptionLevel level) {
  spec_.level = level;
  return *this;
}
Option& Option::scope(OptionScope scope) {
  spec_.scope = scope;
  return *this;
}
Option& Option::old_name(std::string name) {
  spec_.old_names.push_back(std::move(name));
  return *this;
}

namespace {

// A plugin that asks for what it did not declare is a mistake of its author, not of the config.
[[noreturn]] void bad_access(const Options& options, const std::string& name, const char* wanted) {
  const auto found = options.entries().find(name);
  const std::string state =
      found == options.entries().end()
          ? "which it did not declare"
          : (found->second.value.index() == 0 ? "which is not set; ask has() first"
                                              : "which is declared with another type");
  throw Error(Problem{
      Code::kR4Contract,
      {},
      fmt::format("{} asked for the {} option \"{}\", {}",
                  options.label().empty() ? "a plugin" : options.label(), wanted, name, state),
      "",
      "Correct the plugin's options()."});
}

template <typename T>
const T& value_as(const Options& options, const std::string& name, const char* wanted) {
  const auto found = options.entries().find(name);
  if (found != options.entries().end()) {
    if (const T* value = std::get_if<T>(&found->second.value)) return *value;
  }
  bad_access(options, name, wanted);
}

}  // namespace

bool Options::has(const std::string& name) const {
  const auto found = entries_.find(name);
  return found != entries_.end() && found->second.value.index() != 0;
}
bool Options::get_bool(const std::string& name) const {
  return value_as<bool>(*this, name, "bool");
}
int64_t Options::get_int(const std::string& name) const {
  return value_as<int64_t>(*this, name, "int");
}
double Options::get_float(const std::string& name) const {
  return value_as<double>(*this, name, "float");
}
const std::string& Options::get_string(const std::string& name) const {
  return value_as<std::string>(*this, name, "string");
}
const std::vector<int64_t>& Options::get_int_list(const std::string& name) const {
  return value_as<std::vector<int64_t>>(*this, name, "list of ints");
}
const std::vector<double>& Options::get_float_list(const std::string& name) const {
  return value_as<std::vector<double>>(*this, name, "list of floats");
}
const std::vector<std::string>& Options::get_string_list(const std::string& name) const {
  return value_as<std::vector<std::string>>(*this, name, "list of strings");
}

const Options::Entry& Options::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) bad_access(*this, name, "declared");
  return found->second;
}
bool Options::given(const std::string& name) const { return entry(name).origin != "default"; }
SourcePosition Options::where(const std::string& name) const {
  const Entry& found = entry(name);
  return found.where.file.empty() ? table_where_ : found.where;
}
Problem Options::problem(Code code, const std::string& name, std::string what, std::string why,
                         std::string remedy) const {
  return Problem{
      code, where(name),
      fmt::format("option \"{}\"{}{}: {}", name, label_.empty() ? "" : " in ", label_, what),
      std::move(why), std::move(remedy)};
}
void Options::set_table(std::string label, SourcePosition where) {
  label_ = std::move(label);
  table_where_ = std::move(where);
}

Options resolve_options(const OptionSchema& schema,
                        const std::map<std::string, OptionValue>& values, const std::string& origin,
                        Problems& problems) {
  Options options;
  std::vector<std::string> names;
  for (const OptionSpec& spec : schema) {
    names.push_back(spec.name);
    const auto given = values.find(spec.name);
    if (given == values.end()) {
      options.set(spec.name, {spec.default_value, "default", {}});
      if (spec.optional || spec.default_value.index() != 0) continue;
      problems.push_back(Problem{Code::kC3Value,
                                 {},
                                 fmt::format("option \"{}\" is missing", spec.name),
                                 "It has no default: " + spec.doc,
                                 ""});
      continue;
    }
    OptionValue value = given->second;
    if (const auto wrong = convert_option(spec, value)) {
      problems.push_back(
          Problem{Code::kC3Value, {}, fmt::format("option \"{}\" {}", spec.name, *wrong), "", ""});
      value = spec.default_value;
    }
    options.set(spec.name, {value, origin, {}});
  }
  for (const auto& [name, value] : values) {
    if (options.entries().contains(name)) continue;
    problems.push_back(Problem{Code::kC2Unknown,
                               {},
                               fmt::format("unknown option \"{}\"", name),
                               "",
                               did_you_mean(name, names)});
  }
  return options;
}

}  // namespace keyseat
