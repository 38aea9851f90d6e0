#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "runtime/loggers.h"
#include "tools/keyseat/run_setup.h"
#include "tools/keyseat/tool_commands.h"
#include "train/loop.h"
#include "train/report.h"

namespace keyseat::tool {

int command_train(int argc, const char* const* argv) {
  CLI::App app{"Train as the configuration says", "keyseat train"};
  ConfigArguments arguments;
  bool overwrite = false, json = false;
  arguments.add_to(app);
  app.add_flag("--overwrite", overwrite, "Replace the run that run.dir holds");
  app.add_flag("--json", json, "Print the result as JSON on stdout");
  app.parse(argc, argv);
  ConfigPlugins plugins(arguments.allow_abi_mismatch);
  RunConfig config = resolve_or_throw(arguments, plugins, ConfigUse::kTrain);
  prepare_run_dir(config, overwrite);
  const std::string dir = config.run.dir;
  std::ofstream(dir + "/config.toml") << config_toml(config);

  train::Session session(std::move(config), plugins.registry(), {});
  logger("train")->info("{} parameters, {} trained; run.dir {}", session.chain().parameter_count(),
                        session.chain().trainable_count(), dir);
  train::Loop loop(session, dir);
  const train::LoopResult result = loop.run();
  const std::string report = dir + "/report.html";
  train::write_report(dir, report);
  nlohmann::json summary = train::metrics_json(result.last, train::workload_labels(session));
  summary["steps"] = result.steps;
  summary["total_seconds"] = result.seconds;
  summary["weights"] = result.weights;
  summary["report"] = report;
  if (json) {
    fmt::print("{}\n", summary.dump());
  } else {
    fmt::print("trained {} steps in {:.1f} s, loss {:.4f}\nweights  {}\nmetrics  {}\nreport   {}\n",
               result.steps, result.seconds, result.last.loss, result.weights, result.metrics,
               report);
    if (session.data().synthetic()) fmt::print("{}\n", train::kSyntheticNotice);
  }
  return 0;
}

}  // namespace keyseat::tool
