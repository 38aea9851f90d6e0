#include "config/resume_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/option_value.h"
#include "keyseat/suggest.h"

namespace keyseat {
namespace {

// Tables of which every key counts. Of [run] and [model] only single keys do.
bool counts(const std::string& table) {
  for (const char* name : {"model.blocks", "data", "optimizer", "loss"}) {
    if (table == name || table.starts_with(std::string(name) + ".")) return true;
  }
  return false;
}

bool counts(const std::string& table, const OptionSpec& spec) {
  if (table == "run") return spec.name == "seed" || spec.name == "precision";
  if (table == "model") return spec.name == "freeze";
  return counts(table) && spec.level == OptionLevel::kBasic;
}

// "data" names "data.plugin", too.
bool names(const std::string& given, const std::string& key) {
  return key == given || key.starts_with(given + ".");
}

bool may_differ(const RunConfig& config, const std::string& key) {
  const auto& given = config.checkpoint.may_differ;
  return std::any_of(given.begin(), given.end(),
                     [&](const std::string& name) { return names(name, key); });
}

std::string shown(const std::map<std::string, std::string>& keys, const std::string& key) {
  const auto found = keys.find(key);
  return found == keys.end() || found->second.empty() ? "not set" : found->second;
}

}  // namespace

std::map<std::string, std::string> resume_keys(const RunConfig& config) {
  std::map<std::string, std::string> keys;
  std::string block;  // the table of the block whose options follow
  for (const ConfigSection& section : config.sections) {
    std::string prefix = section.table;
    if (section.table == "model.blocks") {
      const Options& options = section.options;
      block = section.table + "." + (options.has("name") ? options.get_string("name") : "");
      prefix = block;
    } else if (section.table == "model.blocks.options") {
      prefix = block + ".options";
    }
    for (const OptionSpec& spec : section.schema) {
      if (!counts(section.table, spec)) continue;
      keys[prefix + "." + spec.name] = value_text(section.options.entries().at(spec.name).value);
    }
  }
  // A longer run is the same run where the schedule does not depend on its length.
  const std::string total = "optimizer.schedule.total_steps";
  keys.erase(total);
  if (config.schedule.kind != ScheduleKind::kConstant)
    keys[total] = value_text(config.schedule.total_steps);
  return keys;
}

Problems may_differ_problems(const RunConfig& config, const Options& checkpoint) {
  Problems problems;
  const auto keys = resume_keys(config);
  std::vector<std::string> known;
  for (const auto& [key, value] : keys) {
    for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1))
      known.push_back(key.substr(0, dot));
    known.push_back(key);
  }
  for (const std::string& given : config.checkpoint.may_differ) {
    if (std::any_of(keys.begin(), keys.end(),
                    [&](const auto& key) { return names(given, key.first); }))
      continue;
    problems.push_back(checkpoint.problem(
        Code::kC2Unknown, "may_differ",
        fmt::format("\"may_differ\" in [checkpoint] names {}, which is no key that must agree",
                    quote(given)),
        "", did_you_mean(given, known)));
  }
  return problems;
}

Problems resume_differences(const std::map<std::string, std::string>& then, const RunConfig& now) {
  const std::map<std::string, std::string> keys = resume_keys(now);
  std::map<std::string, std::string> all = then;
  all.insert(keys.begin(), keys.end());
  Problems problems;
  for (const auto& [key, value] : all) {
    const std::string before = shown(then, key), after = shown(keys, key);
    if (before == after || may_differ(now, key)) continue;
    problems.push_back(
        {Code::kC4Combination,
         {},
         fmt::format("{} is {}, but the checkpoint was made with {}", key, after, before),
         "A resumed run computes what the uninterrupted one would have",
         "Give back the old value, or name the key in checkpoint.may_differ"});
  }
  return problems;
}

}  // namespace keyseat
