// Measures the ops of framework/nn against LibTorch's own, in turn, and prints medians.
#include <ATen/Parallel.h>
#include <ATen/ops/randn_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "tools/bench/ops_cases.h"

namespace keyseat::bench {
namespace {

using Side = std::function<at::Tensor(const OpCase&)>;

// Milliseconds of one forward and backward. Gradients of parameters end in their sinks.
double time_once(const OpCase& op_case, const Side& side, at::Tensor& dy) {
  std::vector<at::Tensor> leaves = op_case.inputs;
  for (const ParamHandle& parameter : op_case.parameters) leaves.push_back(parameter.value());
  const auto start = std::chrono::steady_clock::now();
  at::Tensor y = side(op_case);
  if (!dy.defined()) dy = at::randn_like(y);
  const auto gradients = torch::autograd::grad({y}, leaves, {dy}, {}, false, true);
  for (size_t i = 0; i < op_case.parameters.size(); ++i) {
    const at::Tensor& gradient = gradients[op_case.inputs.size() + i];
    if (gradient.defined()) op_case.parameters[i].sink().add_(gradient);
  }
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace

int run(int argc, char** argv) {
  CLI::App app("Ops of framework/nn against LibTorch's own, forward and backward, fp32");
  int rounds = 30, threads = 0;
  std::string only;
  bool json = false;
  app.add_option("--rounds", rounds, "measurements of each side")->check(CLI::PositiveNumber);
  app.add_option("--threads", threads, "threads; 0: LibTorch's choice")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--only", only, "measure only ops whose name contains this");
  app.add_flag("--json", json, "print one JSON list");
  CLI11_PARSE(app, argc, argv);
  if (threads > 0) at::set_num_threads(threads);

  nlohmann::json results = nlohmann::json::array();
  if (!json)
    fmt::print("{:<20} {:<36} {:>10} {:>10} {:>8}\n", "op", "shape", "ms", "LibTorch", "ratio");
  for (const OpCase& op_case : op_cases()) {
    if (op_case.name.find(only) == std::string::npos) continue;
    at::Tensor dy;
    std::vector<double> keyseat, libtorch;
    constexpr int kWarmUp = 3;
    for (int round = 0; round < rounds + kWarmUp; ++round) {
      const double ours = time_once(op_case, op_case.keyseat, dy);
      const double theirs = time_once(op_case, op_case.libtorch, dy);
      if (round < kWarmUp) continue;
      keyseat.push_back(ours);
      libtorch.push_back(theirs);
    }
    const double ours = median(keyseat), theirs = median(libtorch);
    results.push_back({{"op", op_case.name},
                       {"shape", op_case.shape},
                       {"keyseat_ms", ours},
                       {"libtorch_ms", theirs}});
    if (!json)
      fmt::print("{:<20} {:<36} {:>10.3f} {:>10.3f} {:>8.2f}\n", op_case.name, op_case.shape, ours,
                 theirs, theirs / ours);
  }
  if (json) fmt::print("{}\n", results.dump());
  return 0;
}

}  // namespace keyseat::bench

int main(int argc, char** argv) { return keyseat::bench::run(argc, argv); }
