#include "tools/keyseat/check/conformance_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "plugin/load.h"
#include "runtime/loggers.h"
#include "sdk/conformance/subject.h"
#include "tools/keyseat/load_config.h"

namespace keyseat::tool {
namespace {

using conformance::CaseResult;
using conformance::Cases;
using conformance::Outcome;
using Json = nlohmann::json;

// One JSON object per line, written through at once.
class Reporter {
 public:
  explicit Reporter(const std::string& path) : stream_(path, std::ios::app) {}
  void say(const Json& line) {
    stream_ << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
  }

 private:
  std::ofstream stream_;
};

// While it lives, what is written to stdout goes into a file that nobody sees.
class StdoutWatch {
 public:
  StdoutWatch() : before_(dup(STDOUT_FILENO)), file_(std::tmpfile()) {
    std::fflush(stdout);
    if (file_ != nullptr) dup2(fileno(file_), STDOUT_FILENO);
  }
  ~StdoutWatch() {
    std::fflush(stdout);
    dup2(before_, STDOUT_FILENO);
    close(before_);
    if (file_ != nullptr) std::fclose(file_);
  }
  StdoutWatch(const StdoutWatch&) = delete;

  int64_t bytes() const {
    std::fflush(stdout);
    std::cout.flush();
    struct stat status {};
    return file_ != nullptr && fstat(fileno(file_), &status) == 0 ? status.st_size : 0;
  }

 private:
  int before_;
  std::FILE* file_;
};

// The choice of --config that names the plugin under test, by the very file under test.
const PluginChoice* find_choice(const RunConfig& config, const PluginId& id) {
  for (const PluginChoice& block : config.model.blocks) {
    if (id.kind == "block" && block.name == id.name) return &block;
  }
  const std::pair<const char*, const PluginChoice*> slots[] = {
      {"strategy", &config.strategy},   {"dispatcher", &config.dispatcher},
      {"recompute", &config.recompute}, {"comm", &config.comm},
      {"data", &config.data},           {"optimizer", &config.optimizer}};
  for (const auto& [kind, choice] : slots) {
    if (id.kind == kind && choice->name == id.name) return choice;
  }
  return nullptr;
}

void take_config(const InspectedPlugin& plugin, const RunConfig& config, Registry& registry,
                 conformance::Subject& subject) {
  const PluginChoice* choice = find_choice(config, plugin.id);
  if (choice == nullptr) {
    throw Error(Problem{Code::kC4Combination,
                        {},
                        fmt::format("the configuration does not use {}", plugin.id.text()),
                        "--config gives the options and the surroundings of the plugin",
                        fmt::format("Name it there, or with --set or --overlay.")});
  }
  Problems problems;
  const auto found = registry.load(plugin.id.kind, plugin.id.name, problems);
  std::error_code error;
  if (found == nullptr) throw Error(std::move(problems));
  if (!std::filesystem::equivalent(found->file, plugin.file, error)) {
    throw Error(Problem{Code::kP7Conflict,
                        {},
                        fmt::format("the configuration finds {} at {}, not at {}", plugin.id.text(),
                                    found->file.string(), plugin.file.string()),
                        "",
                        "Give the plugin's folder with --plugin-dir, or check the other file."});
  }
  subject.options = choice->options;
  subject.config = &config;
  subject.registry = &registry;
}

// Options without a configuration: the defaults, where no option is required.
void take_defaults(conformance::Subject& subject) {
  Problems problems;
  const Options options = resolve_options(subject.plugin->options(), {}, "check", problems);
  if (problems.empty()) {
    subject.options = options;
  } else {
    subject.without_options = "it has required options: give --config with a run that uses it";
  }
}

void run_cases(const InspectedPlugin& plugin, const CheckRequest& request, Reporter& reporter) {
  conformance::Subject subject;
  const StdoutWatch watch;
  subject.plugin = load_library(plugin).value_or_throw();
  reporter.say({{"loaded", true}});
  ConfigPlugins plugins(request.config.allow_abi_mismatch);
  RunConfig config;
  if (!request.config.file.empty()) {
    ConfigArguments arguments = request.config;
    arguments.plugin_dirs.push_back(plugin.file.parent_path().string());
    config = load_config(arguments, plugins);
    take_config(plugin, config, plugins.registry(), subject);
  } else {
    take_defaults(subject);
  }
  Cases cases(
      [&](const std::string& name) {
        reporter.say({{"running", name}});
      },
      [&](const CaseResult& result) {
        reporter.say({{"case", result.name},
                      {"outcome", static_cast<int>(result.outcome)},
                      {"text", result.text}});
      });
  conformance::all_cases(subject, cases);
  cases.run("output: nothing was written to stdout", [&] {
    conformance::expect(watch.bytes() == 0,
                        fmt::format("{} bytes were written to stdout, which belongs to the host; "
                                    "use the logger that the host gives",
                                    watch.bytes()));
  });
}

}  // namespace

int CheckReport::count(Outcome outcome) const {
  int number = 0;
  for (const CaseResult& one : cases) number += one.outcome == outcome ? 1 : 0;
  return number;
}

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed:
      return "passed";
    case Outcome::kFailed:
      return "FAILED";
    case Outcome::kSkipped:
      break;
  }
  return "skipped";
}

int check_in_child(const InspectedPlugin& plugin, const CheckRequest& request) {
  Reporter reporter(request.report);
  try {
    run_cases(plugin, request, reporter);
  } catch (const Error& error) {
    for (const Problem& problem : error.problems()) {
      reporter.say({{"code", static_cast<int>(problem.code)},
                    {"file", problem.where.file},
                    {"line", problem.where.line},
                    {"column", problem.where.column},
                    {"what", problem.what},
                    {"why", problem.why},
                    {"remedy", problem.remedy}});
    }
  }
  reporter.say({{"complete", true}});
  return 0;
}

ReportFile::ReportFile() {
  path_ = (std::filesystem::temp_directory_path() / "keyseat-check-XXXXXX").string();
  const int descriptor = mkstemp(path_.data());
  if (descriptor < 0) {
    throw Error(
        Problem{Code::kR7File, {path_, 0, 0}, "cannot create the file", std::strerror(errno), ""});
  }
  close(descriptor);
}

ReportFile::~ReportFile() { unlink(path_.c_str()); }

CheckReport ReportFile::read() const {
  CheckReport report;
  std::ifstream stream(path_);
  for (std::string text; std::getline(stream, text);) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_discarded()) break;  // the child ended in the middle of it
    if (line.contains("loaded")) report.loaded = true;
    if (line.contains("complete")) report.complete = true;
    if (line.contains("running")) report.running = line["running"];
    if (line.contains("case")) {
      report.cases.push_back({line["case"], static_cast<Outcome>(line["outcome"].get<int>()),
                              line["text"].get<std::string>()});
    }
    if (line.contains("code")) {
      report.problems.push_back({static_cast<Code>(line["code"].get<int>()),
                                 {line["file"], line["line"], line["column"]},
                                 line["what"],
                                 line["why"],
                                 line["remedy"]});
    }
  }
  return report;
}

}  // namespace keyseat::tool
