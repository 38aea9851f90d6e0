// keyseat check FILE.so: whether a plugin can be used here, and whether it keeps the contract of
// its kind. First everything that can be said without running it; then a child process loads it,
// because the linker or a static initialiser of the library may end the process, and runs the
// conformance cases.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "plugin/files/inspect.h"
#include "tools/keyseat/check/conformance_child.h"
#include "tools/keyseat/child_process.h"
#include "tools/keyseat/command_line.h"
#include "tools/keyseat/tool_commands.h"

namespace keyseat::tool {
namespace {

using Json = nlohmann::ordered_json;

FoundFile identify(const std::string& given) {
  const auto file = std::filesystem::absolute(given).lexically_normal();
  const auto id = id_from_file_name(file.filename().string());
  if (id) return {*id, file};
  throw Error(Problem{
      Code::kP2NotAPlugin,
      {},
      fmt::format("{} is not a plugin: its name is not keyseat_KIND_NAME.so", file.string()),
      "",
      "Build it with keyseat_add_plugin(), which names it."});
}

Problem ended(const InspectedPlugin& plugin, const ChildResult& child, const CheckReport& report) {
  const std::string tail =
      fmt::format("File: {}. The child said:\n{}", plugin.file.string(), child.output);
  if (child.timed_out) {
    return Problem{
        Code::kR4Contract,
        {},
        fmt::format("{} did not come to an end in case \"{}\"", plugin.id.text(), report.running),
        "The limit is that of --timeout.",
        tail};
  }
  const std::string signal =
      child.signal != 0 ? fmt::format("signal {} ({})", child.signal, strsignal(child.signal))
                        : fmt::format("status {}", child.exit_status);
  if (!report.loaded) {
    return Problem{
        Code::kP4Unloadable,
        {},
        fmt::format("{} ended the process that loaded it by {}", plugin.id.text(), signal),
        "A static initialiser threw, an operator namespace was registered twice, or its "
        "code crashed.",
        tail};
  }
  return Problem{Code::kR4Contract,
                 {},
                 fmt::format("{} ended the process by {} in case \"{}\"", plugin.id.text(), signal,
                             report.running),
                 "",
                 tail};
}

Json json_of(const InspectedPlugin& plugin, const CheckReport& report, const Problems& problems) {
  Json cases = Json::array();
  for (const auto& one : report.cases) {
    cases.push_back(
        {{"name", one.name}, {"outcome", outcome_name(one.outcome)}, {"text", one.text}});
  }
  Json list = Json::array();
  for (const Problem& problem : problems) {
    list.push_back({{"code", code_name(problem.code)}, {"text", problem.text()}});
  }
  return {{"kind", plugin.id.kind},
          {"name", plugin.id.name},
          {"version", plugin.manifest.plugin_version},
          {"file", plugin.file.string()},
          {"ok", problems.empty() && report.count(conformance::Outcome::kFailed) == 0},
          {"passed", report.count(conformance::Outcome::kPassed)},
          {"failed", report.count(conformance::Outcome::kFailed)},
          {"skipped", report.count(conformance::Outcome::kSkipped)},
          {"problems", list},
          {"warnings", plugin.warnings},
          {"cases", cases}};
}

void print_text(const InspectedPlugin& plugin, const CheckReport& report) {
  for (const std::string& warning : plugin.warnings) fmt::print("warning: {}\n", warning);
  fmt::print("{} {}: trusted, well-formed, built for this version\n", plugin.id.text(),
             plugin.manifest.plugin_version);
  for (const auto& one : report.cases) {
    fmt::print("  {:<7}  {}\n", outcome_name(one.outcome), one.name);
    for (size_t begin = 0; begin < one.text.size();) {
      const size_t end = std::min(one.text.find('\n', begin), one.text.size());
      fmt::print("           {}\n", one.text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (report.cases.empty()) return;
  fmt::print("{} passed, {} failed, {} skipped\n", report.count(conformance::Outcome::kPassed),
             report.count(conformance::Outcome::kFailed),
             report.count(conformance::Outcome::kSkipped));
}

}  // namespace

int command_check(int argc, const char* const* argv) {
  CLI::App app{
      "Checks whether a plugin file can be used here and keeps the contract of its kind. It is "
      "loaded in a child process. A block, a data source and plugins with required options need "
      "--config, which gives their options and the model around them.",
      "keyseat check"};
  CheckRequest request;
  bool json = false;
  double timeout = 600;
  app.add_option("FILE", request.file, "The library, keyseat_KIND_NAME.so")->required();
  app.add_option("--config", request.config.file, "Configuration (TOML) that names the plugin");
  request.config.add_to(app, /*positional=*/false);
  app.add_flag("--json", json, "Print JSON");
  app.add_option("--timeout", timeout, "Seconds after which the child is ended")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  // What the child is called with: where it reports to.
  app.add_option("--report", request.report)->group("");
  if (const auto status = end_of_command_line(app, argc, argv)) return *status;

  PluginSearch search;
  search.allow_abi_mismatch = request.config.allow_abi_mismatch;
  const InspectedPlugin plugin = inspect(identify(request.file), search);
  Problems problems = plugin.refusals;
  if (!request.report.empty()) {
    if (!problems.empty()) throw Error(std::move(problems));
    return check_in_child(plugin, request);
  }

  CheckReport report;
  if (problems.empty()) {
    const ReportFile file;
    std::vector<std::string> arguments(argv, argv + argc);
    arguments.insert(arguments.end(), {"--report", file.path()});
    const ChildResult child = run_keyseat(arguments, timeout);
    report = file.read();
    problems = report.problems;
    if (!report.complete) problems = {ended(plugin, child, report)};
  }
  if (json) {
    fmt::print("{}\n", json_of(plugin, report, problems).dump(2));
  } else if (plugin.refusals.empty()) {
    print_text(plugin, report);
  }
  std::fflush(stdout);
  if (!problems.empty()) throw Error(std::move(problems));
  return report.count(conformance::Outcome::kFailed) == 0 ? 0 : exit_status(Code::kR4Contract);
}

}  // namespace keyseat::tool
