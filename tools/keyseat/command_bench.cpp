// Times the training step on a recorded batch: model, weights and batch come from a folder that
// another implementation dumped, so that both run the same step.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "keyseat/data/packing.h"
#include "keyseat/safetensors.h"
#include "tools/keyseat/bench/figures.h"
#include "tools/keyseat/bench/recorded_rows.h"
#include "tools/keyseat/command_line.h"
#include "tools/keyseat/parity/batch.h"
#include "tools/keyseat/parity/fixtures.h"
#include "tools/keyseat/run_setup.h"
#include "tools/keyseat/tool_commands.h"
#include "train/loop.h"

namespace keyseat::tool {

namespace {

struct BenchArguments {
  std::string folder;
  ConfigArguments config;
  int64_t warmup = 3, steps = 10;
  bool json = false;
};

// The optimizer of the peer: AdamW with decay on every parameter. What the user sets comes on top.
RunConfig resolve(const BenchArguments& arguments, ConfigPlugins& plugins) {
  namespace fs = std::filesystem;
  const fs::path folder = arguments.folder;
  const std::string config_file = (folder / "config.json").string();
  const std::vector<std::string> sets{
      "run.precision=\"fp32\"",
      "log.level=\"warn\"",
      "optimizer.clip_norm=1.0",
      "optimizer.options.lr=1e-4",
      "optimizer.options.beta1=0.9",
      "optimizer.options.beta2=0.95",
      "optimizer.options.weight_decay=0.1",
      R"(optimizer.options.decay_roles=["matrix", "bias", "norm", "embedding", "router"])",
      fmt::format("model.init=\"{}\"", fs::absolute(folder / "model.safetensors").string()),
      fmt::format("loss.aux.weight={}", parity::recorded_aux_weight(config_file))};
  return resolve_or_throw(arguments.config, plugins, ConfigUse::kModel,
                          blocks_of_hf_file(config_file, arguments.config), sets);
}

Row recorded_row(const std::string& folder, const InputSpec& input) {
  const std::string file = (std::filesystem::path(folder) / "inputs.safetensors").string();
  const auto inputs = SafetensorsReader::open(file).value_or_throw();
  const parity::Batch batch = parity::read_batch(inputs, file, input);
  std::vector<const Sample*> samples;
  for (const Sample& sample : batch.samples) samples.push_back(&sample);
  data::PackOptions options;
  options.input = input;
  return data::pack(samples, options);
}

bench::Figures run_bench(const BenchArguments& arguments) {
  ConfigPlugins plugins(arguments.config.allow_abi_mismatch);
  train::SessionOptions options;
  options.data = false;
  RunConfig config = resolve(arguments, plugins);  // before the registry is there
  train::Session session(std::move(config), plugins.registry(), options);
  const Row row = recorded_row(arguments.folder, session.chain().input());
  session.use_data(std::make_shared<bench::RecordedRows>(row));
  train::Loop loop(session, /*run_dir=*/"");

  bench::Figures figures;
  figures.threads = at::get_num_threads();
  figures.parameters = session.chain().parameter_count();
  figures.warmup = arguments.warmup;
  figures.labels = train::workload_labels(session);
  figures.flops = train::step_flops(
      session.chain(),
      train::workload_shape(row.facts,
                            static_cast<double>(c10::elementSize(session.facts().compute_dtype))));
  figures.before = bench::measure_gemm_rates();
  for (int64_t step = 0; step < arguments.warmup + arguments.steps; ++step) {
    train::StepMetrics metrics = loop.step(step).value();
    if (step == 0) figures.step0_loss = metrics.loss;
    if (step >= arguments.warmup) figures.steps.push_back(std::move(metrics));
  }
  figures.after = bench::measure_gemm_rates();
  return figures;
}

}  // namespace

int command_bench(int argc, const char* const* argv) {
  CLI::App app{"Time the training step on a recorded batch", "keyseat bench"};
  BenchArguments arguments;
  app.add_option("DIR", arguments.folder,
                 "Folder with config.json, model.safetensors and inputs.safetensors")
      ->required()
      ->check(CLI::ExistingDirectory);
  arguments.config.add_to(app, /*positional=*/false);
  app.add_option("--warmup", arguments.warmup, "Steps before the timed ones (3)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--steps", arguments.steps, "Timed steps (10)")->check(CLI::PositiveNumber);
  app.add_flag("--json", arguments.json, "Print the result as JSON on stdout");
  if (const auto status = end_of_command_line(app, argc, argv)) return *status;
  const bench::Figures figures = run_bench(arguments);
  if (!is_first_rank()) return 0;
  fmt::print("{}", arguments.json ? bench::figures_json(figures).dump() + "\n"
                                  : bench::figures_text(figures));
  return 0;
}

}  // namespace keyseat::tool
