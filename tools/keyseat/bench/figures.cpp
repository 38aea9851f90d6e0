#include "tools/keyseat/bench/figures.h"

#include <nlohmann/json.hpp>

namespace keyseat::tool::bench {

using nlohmann::json;

namespace {

// Median milliseconds of every component over the timed steps.
train::ComponentSeconds median_components(const std::vector<train::StepMetrics>& steps) {
  train::ComponentSeconds medians;
  for (size_t i = 0; i < steps.front().components.size(); ++i) {
    std::vector<double> seconds;
    for (const train::StepMetrics& step : steps) seconds.push_back(step.components[i].second);
    medians.push_back({steps.front().components[i].first, median_of(std::move(seconds))});
  }
  return medians;
}

}  // namespace

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<double> Figures::seconds() const {
  std::vector<double> seconds;
  for (const train::StepMetrics& step : steps) seconds.push_back(step.seconds);
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

json figures_json(const Figures& figures) {
  const std::vector<double> seconds = figures.seconds();
  const double median = median_of(seconds);
  const train::StepMetrics& step = figures.steps.back();
  const auto per_second = [&](int64_t count) { return static_cast<double>(count) / median; };
  const double peak = std::max(best_gflops(figures.before), best_gflops(figures.after));
  json result;
  result["step0_loss"] = figures.step0_loss;
  result["step_s"] = {{"median", median}, {"min", seconds.front()}, {"max", seconds.back()}};
  result["steps"] = seconds.size();
  result["warmup"] = figures.warmup;
  result["useful_tok_s"] = per_second(step.counts.tokens);
  result["image_tok_s"] = per_second(step.counts.visual_tokens);
  result["padding_share"] = step.padding_share();
  result["workload"] = {{"parameters", figures.parameters},
                        {"samples", step.counts.samples},
                        {"images", step.counts.images},
                        {"patches", step.counts.patches},
                        {"useful_tokens", step.counts.tokens},
                        {"image_tokens", step.counts.visual_tokens},
                        {"supervised_tokens", step.counts.supervised},
                        {"routing", figures.labels.routing},
                        {"freeze", figures.labels.freeze},
                        {"precision", figures.labels.precision},
                        {"recompute", figures.labels.recompute}};
  for (const auto& [name, part] : median_components(figures.steps))
    result["milliseconds"][name] = part * 1e3;
  std::vector<double> host;
  for (const train::StepMetrics& one : figures.steps)
    host.push_back(one.host_seconds / one.seconds);
  result["host_share"] = median_of(std::move(host));
  result["threads"] = figures.threads;
  result["gemm_peak_gflops"] = peak;
  for (const auto* rates : {&figures.before, &figures.after}) {
    for (const GemmRate& rate : *rates)
      result["gemm_rates"].push_back(
          {{"m", rate.m}, {"n", rate.n}, {"k", rate.k}, {"gflops", rate.gflops}});
  }
  result["counted_gflop"] = figures.flops.counted * 1e-9;
  result["executed_gflop"] = figures.flops.executed * 1e-9;
  result["share_of_peak"] = figures.flops.executed * 1e-9 / median / peak;
  result["peak_memory_bytes"] = step.peak_memory_bytes;
  return result;
}

std::string figures_text(const Figures& figures) {
  const json result = figures_json(figures);
  const json &step = result["step_s"], &workload = result["workload"];
  std::string text = fmt::format(
      "step 0 loss       {:.6f}\n"
      "seconds per step  {:.3f} median, {:.3f} to {:.3f} of {} steps\n"
      "useful tokens/s   {:.1f}  ({} per step, {} of them of images; {:.1f}/s)\n"
      "GEMM peak         {:.1f} GFLOP/s on {} threads\n"
      "executed          {:.1f} GFLOP per step, {:.1f} % of the peak\n",
      result["step0_loss"].get<double>(), step["median"].get<double>(), step["min"].get<double>(),
      step["max"].get<double>(), result["steps"].get<size_t>(),
      result["useful_tok_s"].get<double>(), workload["useful_tokens"].get<int64_t>(),
      workload["image_tokens"].get<int64_t>(), result["image_tok_s"].get<double>(),
      result["gemm_peak_gflops"].get<double>(), figures.threads,
      result["executed_gflop"].get<double>(), 100 * result["share_of_peak"].get<double>());
  text += "milliseconds     ";
  for (const auto& [name, part] : median_components(figures.steps))
    text += fmt::format(" {} {:.1f}", name, part * 1e3);
  return text + fmt::format("\nhost's own work   {:.2f} % of a step\n",
                            100 * result["host_share"].get<double>());
}

}  // namespace keyseat::tool::bench
