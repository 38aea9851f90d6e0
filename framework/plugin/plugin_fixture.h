// Plugins through the real loader, for the tests of plugins.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "keyseat/options.h"
#include "keyseat/registry.h"

namespace keyseat::testing {

using Values = std::map<std::string, OptionValue>;

inline Registry& test_registry() {
  static Registry registry(make_plugin_search({}));
  return registry;
}

inline std::shared_ptr<const LoadedPlugin> load_plugin(const std::string& kind,
                                                       const std::string& name) {
  Problems problems;
  auto plugin = test_registry().load(kind, name, problems);
  REQUIRE(problems_text(problems) == "");
  return plugin;
}

// What the configuration would say to these values: of the schema, then of the plugin's own rules.
inline Problems problems_of(const std::string& kind, const std::string& name,
                            const Values& values) {
  const auto plugin = load_plugin(kind, name);
  Problems problems;
  const Options options = resolve_options(plugin->options(), values, "test", problems);
  return problems.empty() ? plugin->validate(options) : problems;
}

// Options that must be right.
inline Options options_of(const std::string& kind, const std::string& name, const Values& values) {
  REQUIRE(problems_text(problems_of(kind, name, values)) == "");
  Problems problems;
  return resolve_options(load_plugin(kind, name)->options(), values, "test", problems);
}

template <typename Interface>
std::shared_ptr<Interface> make_plugin(const std::string& name, const Values& values = {}) {
  return test_registry().create<Interface>(name, options_of(KindOf<Interface>::name, name, values));
}

// The values with others put over them.
inline Values with(Values values, const Values& changes) {
  for (const auto& [name, value] : changes) values[name] = value;
  return values;
}

// One problem of this code whose text holds `part`.
inline void check_problem(const Problems& problems, Code code, const std::string& part) {
  INFO(problems_text(problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].code == code);
  CHECK(problems[0].text().find(part) != std::string::npos);
}

// The first problem of the Error that `function` throws.
template <typename Function>
Problem problem_thrown(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.problems().at(0);
  }
  FAIL("no Error was thrown");
  return {};
}

}  // namespace keyseat::testing
