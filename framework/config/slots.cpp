#include "config/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "config/core_schema.h"

namespace keyseat {
namespace {

std::string options_label(const std::string& table, const PluginChoice& choice) {
  return fmt::format("[{}.options] of plugin {}/{}", table, choice.kind, choice.name);
}

bool is_complete(const OptionSchema& schema, const Options& options) {
  return std::all_of(schema.begin(), schema.end(), [&](const OptionSpec& spec) {
    return spec.optional || options.has(spec.name);
  });
}

}  // namespace

const PluginSchema* SlotBinder::look_up(const PluginChoice& choice) {
  Problems found;
  const PluginSchema* schema = schemas_.find(choice.kind, choice.name, found);
  for (Problem& problem : found) {
    if (problem.where.file.empty()) problem.where = choice.where;
    result_.problems.push_back(std::move(problem));
  }
  return schema;
}

Options SlotBinder::bind_options(const PluginSchema& schema, const PluginChoice& choice,
                                 const std::string& label, const Node* table,
                                 const SourcePosition& where) {
  const size_t before = result_.problems.size();
  Options options = bind_table(table, where, {.schema = schema.options, .label = label},
                               result_.problems, result_.notes);
  validate(schema, options, choice, before);
  return options;
}

// The plugin's own rules are asked only about complete tables: they may read every option.
void SlotBinder::validate(const PluginSchema& schema, const Options& options,
                          const PluginChoice& choice, size_t problems_before) {
  const auto begin = result_.problems.begin() + static_cast<std::ptrdiff_t>(problems_before);
  const bool bad_value = std::any_of(begin, result_.problems.end(), [](const Problem& problem) {
    return problem.code == Code::kC3Value;
  });
  if (!schema.validate || bad_value || !is_complete(schema.options, options)) return;
  Problems found;
  try {
    found = schema.validate(options);
  } catch (const Error& error) {
    found = error.problems();
  } catch (const std::exception& error) {
    found = {{Code::kR4Contract,
              {},
              fmt::format("validate() of plugin {}/{} threw: {}", choice.kind, choice.name,
                          error.what()),
              "It must return problems",
              ""}};
  }
  for (Problem& problem : found) {
    if (problem.where.file.empty()) problem.where = choice.where;
    result_.problems.push_back(std::move(problem));
  }
}

size_t SlotBinder::bind(const std::string& kind, const CoreTable& core, const Node* table,
                        const SourcePosition& where, const std::string& fallback,
                        bool may_be_absent, PluginChoice& choice) {
  choice.kind = kind;
  choice.instance = kind;
  // The name is read before the table is checked: with the plugin's options known, a key in the
  // wrong one of the two tables can be told from a misspelt one.
  const Node* name = table != nullptr ? table->find("plugin") : nullptr;
  choice.name = table != nullptr ? table->string_at("plugin") : "";
  choice.origin = "default";
  choice.where = table != nullptr ? table->origin.where : where;
  if (name != nullptr) {
    choice.origin = name->origin.text;
    choice.where = name->origin.where;
  } else {
    choice.name = fallback;
  }
  const PluginSchema* schema = choice.name.empty() ? nullptr : look_up(choice);

  std::vector<std::string> subtables = core_children(core.name);
  subtables.push_back("options");
  const std::string shown = "[" + core.name + "]";
  Options bound = bind_table(table, where,
                             {.schema = core.options,
                              .label = kind == "block" ? "[" + shown + "]" : shown,
                              .subtables = std::move(subtables),
                              .missing_allowed = may_be_absent && table == nullptr,
                              .options_below = schema != nullptr ? &schema->options : nullptr,
                              .options_label = "[" + core.name + ".options]"},
                             result_.problems, result_.notes);
  if (!choice.name.empty() && (!bound.has("plugin") || bound.get_string("plugin") == fallback)) {
    bound.set("plugin", {choice.name, "default", bound.entries().at("plugin").where});
  }
  auto& sections = result_.config.sections;
  sections.push_back({core.name, kind == "block", core.options, std::move(bound), {}});
  const size_t index = sections.size() - 1;
  if (schema == nullptr) return index;
  const Node* options = table != nullptr ? table->find("options") : nullptr;
  choice.options = bind_options(*schema, choice, options_label(core.name, choice), options,
                                table != nullptr ? table->origin.where : where);
  sections.push_back({core.name + ".options", false, schema->options, choice.options, {}});
  return index;
}

void SlotBinder::bind_eval(const PluginChoice& data, const Node* data_table, const Node* eval_table,
                           PluginChoice& choice) {
  choice = data;
  const Node* over = eval_table != nullptr ? eval_table->find("options") : nullptr;
  if (over == nullptr || data.name.empty()) return;
  Problems reported;  // the look-up's problems have been reported with [data]
  const PluginSchema* schema = schemas_.find(data.kind, data.name, reported);
  if (schema == nullptr) return;
  const std::string label = options_label("eval", data);
  const size_t before = result_.problems.size();
  Options overlay = bind_table(over, over->origin.where,
                               {.schema = schema->options, .label = label, .missing_allowed = true},
                               result_.problems, result_.notes);
  // What [eval.options] does not give stays as in training.
  OptionSchema given;
  for (const OptionSpec& spec : schema->options) {
    const auto& entry = overlay.entries().at(spec.name);
    if (entry.where.file.empty()) continue;
    choice.options.set(spec.name, entry);
    given.push_back(spec);
  }
  choice.options.set_table(label, over->origin.where);
  const bool data_is_sound = is_complete(schema->options, data.options) && data_table != nullptr;
  if (data_is_sound) {
    Problems kept = result_.problems;
    validate(*schema, choice.options, data, before);
    // Rules that the training data break too have been reported there.
    auto is_known = [&](const Problem& problem) {
      return std::any_of(kept.begin(), kept.end(), [&](const Problem& other) {
        return other.where.file == problem.where.file && other.where.line == problem.where.line &&
               other.where.column == problem.where.column && other.code == problem.code;
      });
    };
    auto& problems = result_.problems;
    const auto first_new = problems.begin() + static_cast<std::ptrdiff_t>(kept.size());
    problems.erase(std::remove_if(first_new, problems.end(), is_known), problems.end());
  }
  result_.config.sections.push_back({"eval.options", false, std::move(given), choice.options, {}});
}

}  // namespace keyseat
