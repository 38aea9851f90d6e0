#include "train/metrics.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "keyseat/status.h"
#include "train/dispatch_report.h"

namespace keyseat::train {

using nlohmann::json;

ComponentSeconds component_seconds(const Chain& chain, const std::vector<UnitSeconds>& units,
                                   double optimizer, double data, double total) {
  ComponentSeconds components;
  double dispatcher = 0, known = optimizer + data;
  for (const NamedBlock& block : chain.blocks()) components.push_back({block.name, 0.0});
  for (int u = 0; u < chain.size(); ++u) {
    const UnitSeconds& unit = units[u];
    dispatcher += unit.dispatcher;
    known += unit.forward + unit.backward;
    for (auto& [name, seconds] : components) {
      if (name == chain.units()[u].block) seconds += unit.forward + unit.backward - unit.dispatcher;
    }
  }
  components.push_back({"dispatcher", dispatcher});
  components.push_back({"optimizer", optimizer});
  components.push_back({"data", data});
  components.push_back({"other", std::max(0.0, total - known)});
  return components;
}

namespace {

// NaN and infinity have no JSON number; a reader must still see them.
json number(double value) {
  return std::isfinite(value) ? json(value) : json(std::to_string(value));
}

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

}  // namespace

json metrics_json(const StepMetrics& metrics, const WorkloadLabels& labels) {
  json line;
  line["step"] = metrics.step;
  line["loss"] = number(metrics.loss);
  for (const auto& [name, value] : metrics.terms) line["loss_" + name] = number(value);
  line["grad_norm"] = number(metrics.grad_norm);
  line["clip"] = number(metrics.clip);
  line["lr"] = metrics.lr;
  line["seconds"] = metrics.seconds;
  line["useful_tokens"] = metrics.counts.tokens;
  line["image_tokens"] = metrics.counts.visual_tokens;
  line["supervised_tokens"] = metrics.counts.supervised;
  line["patches"] = metrics.counts.patches;
  line["images"] = metrics.counts.images;
  line["samples"] = metrics.counts.samples;
  line["failed_samples"] = metrics.counts.failed;
  line["padding_share"] = metrics.padding_share();
  line["useful_tokens_per_second"] = metrics.useful_tokens_per_second();
  line["image_tokens_per_second"] = metrics.image_tokens_per_second();
  for (const auto& [name, seconds] : metrics.components) line["milliseconds"][name] = seconds * 1e3;
  if (!metrics.expert_load.empty()) line["expert_load"] = metrics.expert_load;
  for (const auto& [reason, failure] : metrics.failures) {
    line["data_failures"][reason] = {{"count", failure.first}, {"example", failure.second}};
  }
  if (metrics.peak_memory_bytes > 0) line["peak_memory_bytes"] = metrics.peak_memory_bytes;
  line["routing"] = labels.routing;
  if (metrics.dispatched.capacity + metrics.dispatched.overflow > 0) {
    line["dropped_choices"] = {{"of", metrics.dispatched.choices},
                               {"capacity", metrics.dispatched.capacity},
                               {"bound", metrics.dispatched.overflow}};
  }
  line["freeze"] = labels.freeze;
  line["precision"] = labels.precision;
  line["recompute"] = labels.recompute;
  if (labels.synthetic) line["notice"] = kSyntheticNotice;
  return line;
}

std::string progress_line(const StepMetrics& metrics, const WorkloadLabels& labels, int64_t steps,
                          double median_step_seconds) {
  std::string line = fmt::format("step {}/{}  loss {:.4f}", metrics.step + 1, steps, metrics.loss);
  for (const auto& [name, value] : metrics.terms) line += fmt::format("  {} {:.4f}", name, value);
  line += fmt::format("  lr {:.3g}  grad norm {:.3f}", metrics.lr, metrics.grad_norm);
  line += fmt::format("  |  useful tokens/s {:.0f}, of images {:.0f}, padding {:.1f} %",
                      metrics.useful_tokens_per_second(), metrics.image_tokens_per_second(),
                      100 * metrics.padding_share());
  line += "  |  ms";
  for (const auto& [name, seconds] : metrics.components)
    line += fmt::format(" {} {:.1f}", name, seconds * 1e3);
  line += fmt::format(
      "  |  ETA {}", duration(static_cast<double>(steps - metrics.step - 1) * median_step_seconds));
  if (metrics.counts.failed > 0)
    line += fmt::format("  |  {} samples failed", metrics.counts.failed);
  if (!labels.freeze.empty())
    line += fmt::format("  |  frozen: {}", fmt::join(labels.freeze, ", "));
  if (const std::string dropped = dropped_text(metrics.dispatched); !dropped.empty())
    line += fmt::format("  |  {}", dropped);
  if (labels.routing != "natural") line += fmt::format("  [routing: {}]", labels.routing);
  if (labels.synthetic) line += fmt::format("  [{}]", kSyntheticNotice);
  return line;
}

MetricsFile::MetricsFile(const std::string& path) : path_(path), stream_(path, std::ios::app) {
  if (!stream_)
    throw Error(
        Problem{Code::kR7File, {path, 0, 0}, "cannot write the metrics", std::strerror(errno), ""});
}

void MetricsFile::write(const json& line) {
  stream_ << line.dump() << std::endl;
  if (!stream_)
    throw Error(Problem{
        Code::kR7File, {path_, 0, 0}, "cannot write the metrics", std::strerror(errno), ""});
}

}  // namespace keyseat::train
