#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/keyseat/command_line.h"
#include "tools/keyseat/run_setup.h"
#include "tools/keyseat/tool_commands.h"
#include "train/measure.h"
#include "train/metrics.h"

namespace keyseat::tool {

int command_eval(int argc, const char* const* argv) {
  CLI::App app{"Decode the held-out set greedily and report accuracy", "keyseat eval"};
  ConfigArguments arguments;
  std::string weights;
  bool json = false, examples = false;
  arguments.add_to(app);
  app.add_option("--weights", weights,
                 "Safetensors file or folder; run.dir/final.safetensors where not given");
  app.add_flag("--json", json, "Print the result as JSON on stdout");
  app.add_flag("--examples", examples, "Print every sample with what was decoded");
  if (const auto status = end_of_command_line(app, argc, argv)) return *status;
  ConfigPlugins plugins(arguments.allow_abi_mismatch);
  RunConfig config = resolve_or_throw(arguments, plugins, ConfigUse::kTrain);
  if (weights.empty()) weights = config.run.dir + "/final.safetensors";
  config.model.init = weights;
  train::SessionOptions options;
  options.data = false;
  const EvalSettings eval = config.eval;
  train::Session session(std::move(config), plugins.registry(), options);
  const auto data = session.open_data(eval.data, /*training=*/false);
  const train::Measured measured = train::measure(session, *data);
  if (!session.leads()) return 0;
  nlohmann::json line = train::measured_json(measured, examples);
  if (data->synthetic()) line["notice"] = train::kSyntheticNotice;
  if (json) {
    fmt::print("{}\n", line.dump());
    return 0;
  }
  if (examples && measured.accuracy) {
    for (const train::EvalExample& example : measured.accuracy->examples) {
      fmt::print("{}  expected {:?}  decoded {:?}  {}\n", example.key, example.answer, example.text,
                 example.correct ? "right" : "wrong");
    }
  }
  fmt::print("{}\n", train::measured_text(measured));
  return 0;
}

}  // namespace keyseat::tool
