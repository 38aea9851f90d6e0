// keyseat launch: runs a command on several ranks of this machine.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/launch_environment.h"
#include "keyseat/status.h"
#include "tools/keyseat/command_line.h"
#include "tools/keyseat/light/launch/supervisor.h"
#include "tools/keyseat/light_commands.h"

namespace keyseat::tool {
namespace {

constexpr int kMostRanks = 1024;
constexpr double kGraceSeconds = 3;

int launch(LaunchPlan plan, double grace) {
  try {
    const LaunchEnvironment environment = launch_environment();
    if (environment.world > 1) {
      throw Error(Problem{Code::kC4Combination,
                          {},
                          fmt::format("keyseat launch was started as rank {} of {}, by {}",
                                      environment.rank, environment.world, environment.launcher),
                          "it starts ranks itself",
                          "Run the command directly under " + environment.launcher + "."});
    }
    const auto& arguments = plan.arguments;
    const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
    plan.socket = listen_on_free_port(plan.port);
    return Supervisor(std::move(plan), json, grace).run();
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", problems_text(error.problems()));
    return exit_status(error.problems().front().code);
  }
}

}  // namespace

int command_launch(int argc, const char* const* argv) {
  const char* const* const end = argv + argc;
  const char* const* const split =
      std::find_if(argv, end, [](std::string_view argument) { return argument == "--"; });
  CLI::App app{
      "Runs a command on several ranks of this machine. Their output is prefixed with the rank "
      "(stdout of rank 0 is not where the command has --json); the first failure ends all ranks "
      "and gives the exit status.",
      "keyseat launch"};
  LaunchPlan plan;
  double grace = kGraceSeconds;
  app.add_option("-n,--ranks", plan.ranks, "Number of ranks")
      ->required()
      ->check(CLI::Range(1, kMostRanks));
  app.add_option("--program", plan.program, "Another program than keyseat")
      ->check(CLI::ExistingFile);
  app.add_option("--grace", grace,
                 "Seconds that the other ranks get to end by themselves after the first failure")
      ->check(CLI::NonNegativeNumber);
  app.footer("keyseat launch -n N [OPTIONS] -- COMMAND ...");
  if (const auto status = end_of_command_line(app, static_cast<int>(split - argv), argv))
    return *status;
  if (split == end || (split + 1 == end && plan.program.empty())) {
    fmt::print(stderr, "keyseat launch: no command; write keyseat launch -n {} -- COMMAND ...\n",
               plan.ranks);
    return kUsageStatus;
  }
  plan.arguments.assign(split + 1, end);
  if (plan.program.empty()) plan.program = std::filesystem::canonical("/proc/self/exe");
  return launch(std::move(plan), grace);
}

}  // namespace keyseat::tool
