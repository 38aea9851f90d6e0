#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "checkpoint/atomic_file.h"
#include "runtime/loggers.h"
#include "tools/keyseat/chain/collect.h"
#include "tools/keyseat/chain/row_options.h"
#include "tools/keyseat/command_line.h"
#include "tools/keyseat/layout/layout_facts.h"
#include "tools/keyseat/run_setup.h"
#include "tools/keyseat/tool_commands.h"
#include "train/loop.h"
#include "train/report.h"
#include "train/stop_signal.h"

namespace keyseat::tool {

namespace {

constexpr int64_t kMostRanks = int64_t{1} << 20;

nlohmann::json summary_json(const train::LoopResult& result, train::Session& session,
                            const std::string& report) {
  nlohmann::json summary = train::metrics_json(result.last, train::workload_labels(session));
  summary["steps"] = result.steps;
  summary["stopped"] = result.stopped;
  summary["total_seconds"] = result.seconds;
  summary["weights"] = result.weights;
  summary["report"] = report;
  return summary;
}

void print_summary(const train::LoopResult& result, train::Session& session,
                   const std::string& report) {
  if (result.stopped) {
    const std::string own = train::stop_signal_name();
    fmt::print("stopped by {} behind {} of {} steps; --resume goes on from there\n",
               own.empty() ? "a signal to another rank" : own, result.steps,
               session.config().run.steps);
  } else {
    // A run that was complete before has no step of its own.
    const bool stepped = result.last.seconds > 0;
    fmt::print("trained {} steps{}{}\nweights  {}\n", result.steps,
               stepped ? fmt::format(" in {:.1f} s", result.seconds) : "",
               stepped ? fmt::format(", loss {:.4f}", result.last.loss) : "", result.weights);
  }
  fmt::print("metrics  {}\nreport   {}\n", result.metrics, report);
  if (session.data().synthetic()) fmt::print("{}\n", train::kSyntheticNotice);
}

// The layout on `world` ranks, and the model forward and backward on meta tensors. Nothing connects
// the ranks, so that any machine can look at any layout.
void dry_run(const ConfigArguments& arguments, int64_t world, const chain::RowShape& row,
             bool json) {
  ConfigPlugins plugins(arguments.allow_abi_mismatch);
  const RunConfig config = resolve_or_throw(arguments, plugins, ConfigUse::kTrain, {},
                                            {"comm.plugin=self", "log.level=warn"}, world);
  Registry& registry = plugins.registry();
  const layout::LayoutFacts facts = layout::collect(config, registry, world, row);
  const double seconds = chain::collect(config, registry, row).dry_run_seconds;
  fmt::print("{}", json ? layout::layout_json(facts) : layout::layout_text(facts));
  if (!json)
    fmt::print("dry run: forward and backward on meta tensors passed, {:.1f} s\n", seconds);
}

}  // namespace

int command_train(int argc, const char* const* argv) {
  CLI::App app{"Train as the configuration says", "keyseat train"};
  app.footer(fmt::format(
      "SIGTERM or SIGINT saves a checkpoint behind the step under way and ends with status {}; a "
      "second one ends at once.",
      train::kStoppedStatus));
  ConfigArguments arguments;
  bool overwrite = false, resume = false, json = false;
  arguments.add_to(app);
  auto* replace = app.add_flag("--overwrite", overwrite, "Replace the run that run.dir holds");
  app.add_flag("--resume", resume,
               "Go on from the newest checkpoint of run.dir; from the first step where it has none")
      ->excludes(replace);
  app.add_flag("--json", json, "Print the result as JSON on stdout");
  bool dry = false;
  int64_t world = 1;
  chain::RowShape row;
  auto* dry_flag = app.add_flag("--dry-run", dry,
                                "Do not train: check the layout, print what it puts on the ranks, "
                                "run the model on meta tensors");
  app.add_option("--world", world, "Ranks of the dry run (1)")
      ->needs(dry_flag)
      ->check(CLI::Range(int64_t{1}, kMostRanks));
  chain::add_row_options(app, row, dry_flag);
  if (const auto status = end_of_command_line(app, argc, argv)) return *status;
  if (dry) {
    dry_run(arguments, world, row, json);
    return 0;
  }
  ConfigPlugins plugins(arguments.allow_abi_mismatch);
  RunConfig config = resolve_or_throw(arguments, plugins, ConfigUse::kTrain);
  const std::string dir = config.run.dir;
  if (is_first_rank()) {
    prepare_run_dir(config, resume      ? UsedRunDir::kResume
                            : overwrite ? UsedRunDir::kOverwrite
                                        : UsedRunDir::kRefuse);
  }
  train::watch_stop_signals();
  const std::string config_text = config_toml(config);
  if (resume && has_checkpoint(config))
    config.model.init.clear();  // the checkpoint has the weights

  train::Session session(std::move(config), plugins.registry(), {});
  logger("train")->info("{} parameters, {} trained; run.dir {}", session.chain().parameter_count(),
                        session.chain().trainable_count(), dir);
  train::Loop loop(session, dir);
  if (resume) loop.resume();
  // Behind everything that can refuse the configuration: a refused --resume changes nothing.
  if (session.leads()) checkpoint::write_text_file(dir + "/config.toml", config_text);
  const train::LoopResult result = loop.run();
  if (!session.leads()) return result.stopped ? train::kStoppedStatus : 0;
  const std::string report = dir + "/report.html";
  if (result.steps > 0) train::write_report(dir, report);
  if (json) {
    fmt::print("{}\n", summary_json(result, session, report).dump());
  } else {
    print_summary(result, session, report);
  }
  return result.stopped ? train::kStoppedStatus : 0;
}

}  // namespace keyseat::tool
