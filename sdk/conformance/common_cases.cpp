// What holds for plugins of every kind: two exports, a schema that makes sense, instances that know
// nothing of each other.
#include "plugin/files/elf_file.h"
#include "sdk/conformance/subject.h"

namespace keyseat::conformance {
namespace {

using Values = std::map<std::string, OptionValue>;
constexpr int kInstances = 100;

void check_exports(const Subject& subject) {
  const ElfFile elf = ElfFile::open(subject.plugin->file).value_or_throw();
  std::set<std::string> exported;
  for (const ElfFile::Symbol& symbol : elf.exported()) {
    // Inline functions of LibTorch leave weak and unique symbols in every library.
    if (symbol.strong || symbol.name.starts_with("keyseat_")) exported.insert(symbol.name);
  }
  for (const char* name : {"keyseat_plugin_manifest", "keyseat_plugin_entry"}) {
    expect(exported.erase(name) == 1, fmt::format("{} is not exported", name));
  }
  // The sanitizer adds a marker per exported variable.
  std::erase_if(exported, [](const std::string& name) { return name.starts_with("__odr_asan"); });
  expect(exported.empty(),
         fmt::format("other names are exported, too: {}; compile with -fvisibility=hidden",
                     fmt::join(exported, ", ")));
}

bool is_snake_case(const std::string& name) {
  return !name.empty() && name[0] >= 'a' && name[0] <= 'z' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

void check_schema(const OptionSchema& schema) {
  std::set<std::string> names;
  for (const OptionSpec& spec : schema) {
    expect(is_snake_case(spec.name), fmt::format("option \"{}\" is not in snake_case", spec.name));
    expect(names.insert(spec.name).second,
           fmt::format("option \"{}\" is declared twice", spec.name));
    expect(!spec.doc.empty(), fmt::format("option \"{}\" has no sentence of doc", spec.name));
    expect(spec.type != OptionType::kEnum || !spec.choices.empty(),
           fmt::format("option \"{}\" is an enum without choices", spec.name));
    if (std::holds_alternative<std::monostate>(spec.default_value)) continue;
    Problems problems;
    resolve_options({spec}, {{spec.name, spec.default_value}}, "check", problems);
    expect(problems.empty(), fmt::format("the default of option \"{}\" is refused: {}", spec.name,
                                         problems_text(problems)));
  }
}

// Values that must not pass: of another type, outside of the range, no choice.
std::vector<OptionValue> bad_values(const OptionSpec& spec) {
  std::vector<OptionValue> bad;
  const bool is_text = spec.type == OptionType::kString || spec.type == OptionType::kPath;
  if (is_text || spec.type == OptionType::kStringList || spec.type == OptionType::kPathList) {
    bad.emplace_back(true);
  } else {
    bad.emplace_back(std::string("neither a number nor a choice"));
  }
  if (spec.minimum && *spec.minimum > -1e15 && spec.type == OptionType::kInt) {
    bad.emplace_back(static_cast<int64_t>(*spec.minimum) - 1);
  }
  if (spec.maximum && *spec.maximum < 1e15 && spec.type == OptionType::kInt) {
    bad.emplace_back(static_cast<int64_t>(*spec.maximum) + 1);
  }
  if (spec.minimum && spec.type == OptionType::kFloat) bad.emplace_back(*spec.minimum - 1);
  return bad;
}

void check_bad_options(const OptionSchema& schema) {
  const auto refused = [&](const Values& values) {
    Problems problems;
    resolve_options(schema, values, "check", problems);
    return std::any_of(problems.begin(), problems.end(), [&](const Problem& problem) {
      return problem.what.find('"' + values.begin()->first + '"') != std::string::npos;
    });
  };
  expect(refused({{"no_such_option_of_this_plugin", int64_t{1}}}), "an unknown option is accepted");
  for (const OptionSpec& spec : schema) {
    for (const OptionValue& value : bad_values(spec)) {
      expect(refused({{spec.name, value}}),
             fmt::format("a bad value of option \"{}\" is accepted", spec.name));
    }
  }
}

// The plugin's own rules are asked about the values at the ends of every range and about every
// choice: they may refuse them, with problems, but must not throw.
void check_validate(const Subject& subject) {
  if (!subject.options) skip(subject.without_options);
  const Problems own = subject.plugin->validate(*subject.options);
  expect(own.empty(), "the plugin refuses the options it was given: " + problems_text(own));
  const auto ask = [&](const OptionSpec& spec, OptionValue value) {
    Options options = *subject.options;
    options.set(spec.name, {std::move(value), "check", {}});
    for (const Problem& problem : subject.plugin->validate(options)) {
      expect(problem.code == Code::kC3Value || problem.code == Code::kC4Combination,
             fmt::format("validate() gives code {}, not C3 or C4: {}", code_name(problem.code),
                         problem.text()));
      expect(!problem.what.empty(), "validate() gives a problem without a text");
    }
  };
  for (const OptionSpec& spec : subject.plugin->options()) {
    for (const std::string& choice : spec.choices) ask(spec, choice);
    for (const std::optional<double>& end : {spec.minimum, spec.maximum}) {
      if (!end || std::abs(*end) > 1e15) continue;
      if (spec.type == OptionType::kInt) ask(spec, static_cast<int64_t>(*end));
      if (spec.type == OptionType::kFloat) ask(spec, *end);
    }
  }
}

}  // namespace

void common_cases(const Subject& subject, Cases& cases) {
  cases.run("exports: the manifest, the entry, and nothing else", [&] { check_exports(subject); });
  cases.run("options: names, sentences, and defaults that fit their own range",
            [&] { check_schema(subject.plugin->options()); });
  cases.run("options: the declaration is the same when asked again", [&] {
    const OptionSchema first = subject.plugin->options(), second = subject.plugin->options();
    bool same = first.size() == second.size();
    for (size_t i = 0; same && i < first.size(); ++i) same = first[i].name == second[i].name;
    expect(same, "options() gives another list the second time");
  });
  cases.run("options: what is unknown, mistyped or out of range is refused",
            [&] { check_bad_options(subject.plugin->options()); });
  cases.run("options: the plugin's own rules answer with problems, never with an exception",
            [&] { check_validate(subject); });
  cases.run("instances: two at once", [&] {
    const auto first = subject.make_any(), second = subject.make_any();
    expect(first != second, "two instances are one object");
  });
  cases.run(fmt::format("instances: created and destroyed {} times", kInstances), [&] {
    for (int i = 0; i < kInstances; ++i) subject.make_any();
  });
}

void all_cases(const Subject& subject, Cases& cases) {
  common_cases(subject, cases);
  const std::string& kind = subject.plugin->kind;
  if (kind == "block") block_cases(subject, cases);
  if (kind == "strategy") strategy_cases(subject, cases);
  if (kind == "dispatcher") {
    dispatcher_cases(subject, cases);
    dispatcher_rank_cases(subject, cases);
  }
  if (kind == "recompute") recompute_cases(subject, cases);
  if (kind == "comm") comm_cases(subject, cases);
  if (kind == "data") data_cases(subject, cases);
  if (kind == "optimizer") optimizer_cases(subject, cases);
}

}  // namespace keyseat::conformance
