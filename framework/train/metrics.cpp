#include "train/metrics.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "keyseat/status.h"
#include "train/dispatch_report.h"

namespace keyseat::train {

using nlohmann::json;

void set_seconds(const Chain& chain, const std::vector<UnitSeconds>& units, const StepSeconds& step,
                 StepMetrics& metrics) {
  ComponentSeconds components;
  double dispatcher = 0, in_units = 0, host = 0;
  for (const NamedBlock& block : chain.blocks()) components.push_back({block.name, 0.0});
  for (int u = 0; u < chain.size(); ++u) {
    const UnitSeconds& unit = units[u];
    dispatcher += unit.dispatcher;
    host += unit.host;
    in_units += unit.forward + unit.backward;
    for (auto& [name, seconds] : components) {
      if (name == chain.units()[u].block) seconds += unit.forward + unit.backward - unit.dispatcher;
    }
  }
  const double other = step.total - step.data - step.chain - step.norm - step.optimizer;
  components.push_back({"dispatcher", dispatcher});
  components.push_back({"strategy", step.chain - in_units});
  components.push_back({"norm", step.norm});
  components.push_back({"optimizer", step.optimizer});
  components.push_back({"data", step.data});
  components.push_back({"other", other});
  metrics.seconds = step.total;
  metrics.host_seconds = other + host;
  metrics.components = std::move(components);
}

namespace {

// [[value, count], ...], ascending.
json histogram_json(const Histogram& histogram) {
  json pairs = json::array();
  for (const auto& [value, count] : histogram) pairs.push_back({value, count});
  return pairs;
}

void add_rows(const StepMetrics& metrics, json& line) {
  line["cursor"] = metrics.cursor;
  const RowStatistics& rows = metrics.statistics;
  line["histograms"] = {{"sample_tokens", histogram_json(rows.sample_tokens)},
                        {"images_per_sample", histogram_json(rows.images_per_sample)},
                        {"image_tokens", histogram_json(rows.image_tokens)},
                        {"aspect_sixteenths", histogram_json(rows.aspect_sixteenths)}};
  if (!metrics.sample_ids.empty()) line["sample_ids"] = metrics.sample_ids;
}

void add_routers(const StepMetrics& metrics, json& line) {
  for (const auto& [layer, router] : metrics.routers) {
    line["expert_load"][layer] = router.load;
    line["expert_load_entropy"][layer] = router.load_entropy;
    line["router_entropy"][layer] = router.router_entropy;
    line["dropped_rows"][layer] = router.dropped;
  }
}

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
  line["host_seconds"] = metrics.host_seconds;
  for (const auto& [block, norm] : metrics.norms.block_gradient)
    line["block_grad_norm"][block] = number(norm);
  for (const auto& [block, norm] : metrics.norms.block_parameter)
    line["block_parameter_norm"][block] = number(norm);
  add_rows(metrics, line);
  add_routers(metrics, line);
  for (const auto& [reason, failure] : metrics.failures) {
    line["data_failures"][reason] = {{"count", failure.first}, {"example", failure.second}};
  }
  if (metrics.peak_memory_bytes > 0) line["peak_memory_bytes"] = metrics.peak_memory_bytes;
  for (const auto& [name, bytes] : metrics.memory_peaks) line["memory_peak_bytes"][name] = bytes;
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

}  // namespace keyseat::train
