#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "train/report/bars.h"
#include "train/report/page.h"

namespace keyseat::train {

Plot Page::plot(const std::string& title, const std::string& unit) const {
  Plot plot;
  plot.title = title;
  plot.unit = unit;
  plot.steps = run_.steps;
  return plot;
}

std::string Page::lines(const Plot& plot, const Fields& fields) const {
  Plot filled = plot;
  for (const auto& [label, field] : fields) {
    if (!run_.column(field).empty()) filled.series.push_back({label, run_.column(field)});
  }
  return line_plot(filled);
}

void Page::learning() {
  Plot loss = plot("Loss", "");
  loss.may_be_logarithmic = true;
  loss.remark = "total is the weighted sum that is trained on; its terms are shown unweighted.";
  Fields terms{{"total", "loss"}, {"ce", "loss_ce"}};
  for (const auto& [field, values] : run_.columns) {
    if (field.starts_with("loss_") && field != "loss_ce") terms.push_back({field.substr(5), field});
  }
  html_ += lines(loss, terms);
  if (run_.evaluations.size() > 1) {
    html_ += evaluation_plot("Held-out loss", &Evaluation::loss);
    html_ += evaluation_plot("Held-out accuracy", &Evaluation::accuracy);
  }
  html_ += lines(plot("Learning rate", ""), {{"", "lr"}});
  html_ += lines(plot("Gradient norm", "before clipping"), {{"", "grad_norm"}});
  Plot gradients = plot("Gradient norm by block", "before clipping");
  gradients.may_be_logarithmic = true;
  html_ += lines(gradients, run_.fields_of("block_grad_norm"));
  Plot parameters = plot("Parameter norm by block", "");
  parameters.may_be_logarithmic = true;
  parameters.dotted = true;
  html_ += lines(parameters, run_.fields_of("block_parameter_norm"));
}

std::string Page::evaluation_plot(const std::string& title, double Evaluation::*value) const {
  Plot filled;
  filled.title = title;
  filled.series.push_back({title, {}});
  for (const Evaluation& eval : run_.evaluations) {
    filled.steps.push_back(eval.step);
    filled.series[0].values.push_back(eval.*value);
  }
  return line_plot(filled);
}

void Page::throughput() {
  Plot tokens = plot("Tokens per second", "");
  tokens.notice = run_.notice;
  html_ += lines(tokens, {{"useful tokens", "useful_tokens_per_second"},
                          {"of them image tokens", "image_tokens_per_second"}});
  Plot time = plot("Time of a step by component", "ms");
  time.notice = run_.notice;
  for (const std::string& name : run_.components())
    time.series.push_back({name, run_.column("milliseconds." + name)});
  html_ += stacked_plot(time);
  memory();
}

void Page::memory() {
  const std::vector<double>& peak = run_.column("peak_memory_bytes");
  const bool large = last(peak) >= 1 << 30;
  const auto in_unit = [&](std::vector<double> bytes) {
    for (double& value : bytes) value /= large ? 1 << 30 : 1 << 20;
    return bytes;
  };
  Plot memory = plot("Memory peak", large ? "GiB" : "MiB");
  memory.series.push_back({"together", in_unit(peak)});
  for (const auto& [name, field] : run_.fields_of("memory_peak_bytes"))
    memory.series.push_back({name, in_unit(run_.column(field))});
  memory.remark = "Of tensors, since the start of the process; each purpose has its own time.";
  html_ += line_plot(memory);
}

void Page::samples() {
  const auto histogram = [&](const char* title, const char* unit, const char* word,
                             const char* name, double scale = 1) {
    const auto found = run_.histograms.find(name);
    if (found != run_.histograms.end())
      html_ += bar_plot({title, unit, word, found->second, scale});
  };
  histogram("Length of a sample", "useful tokens", "sample", "sample_tokens");
  histogram("Images of a sample", "", "sample", "images_per_sample");
  histogram("Size of an image", "visual tokens", "image", "image_tokens");
  histogram("Longer side of an image by its shorter side", "", "image", "aspect_sixteenths",
            1.0 / 16);
  Plot size = plot("Mean size of a sample", "tokens");
  for (const auto& [label, field] : Fields{{"useful tokens", "useful_tokens"},
                                           {"of them image tokens", "image_tokens"},
                                           {"supervised tokens", "supervised_tokens"}})
    size.series.push_back({label, ratio(run_.column(field), run_.column("samples"))});
  html_ += line_plot(size);
}

void Page::experts() {
  if (run_.expert_load.empty()) return;
  HeatMap map;
  map.title = "Load of each expert, by layer";
  map.row_word = "layer";
  map.column_word = "expert";
  double highest = 0;
  int64_t idle = 0;
  for (const auto& [layer, counts] : run_.expert_load) {
    double sum = 0;
    for (const int64_t count : counts) sum += static_cast<double>(count);
    const double even = sum / static_cast<double>(counts.size());
    std::vector<double> shares;
    for (const int64_t count : counts) {
      shares.push_back(even > 0 ? static_cast<double>(count) / even : 0);
      highest = std::max(highest, shares.back());
      idle += count == 0 ? 1 : 0;
    }
    map.rows.push_back({layer, std::move(shares)});
  }
  map.remark =
      fmt::format("Over the last {}; 1 is an even share. Highest {:.2f}, {} without a token.",
                  count_text(run_.expert_load_steps, "step"), highest, count_text(idle, "expert"));
  html_ += heat_map(map);
  entropy("Evenness of expert load", "expert_load_entropy",
          "Entropy of the load over that of an even load.");
  entropy("Evenness of router probabilities", "router_entropy",
          "Entropy of the mean probabilities over that of even ones.");
  Plot dropped = plot("Dropped rows", "of all layers");
  dropped.series.push_back({"", over_layers("dropped_rows", 0, std::plus<>())});
  if (std::any_of(dropped.series[0].values.begin(), dropped.series[0].values.end(),
                  [](double rows) { return rows > 0; }))
    html_ += line_plot(dropped);
}

std::vector<double> Page::over_layers(const std::string& table, double start,
                                      const std::function<double(double, double)>& combine) const {
  std::vector<double> values;
  for (const auto& [layer, field] : run_.fields_of(table)) {
    const std::vector<double>& column = run_.column(field);
    values.resize(column.size(), start);
    for (size_t i = 0; i < column.size(); ++i) values[i] = combine(values[i], column[i]);
  }
  return values;
}

void Page::entropy(const std::string& title, const std::string& table, const std::string& remark) {
  const auto layers = static_cast<double>(run_.fields_of(table).size());
  Plot filled = plot(title, "1 is even");
  filled.remark = remark;
  filled.series.push_back({"mean of the layers", over_layers(table, 0, std::plus<>())});
  for (double& value : filled.series[0].values) value /= layers;
  filled.series.push_back(
      {"lowest layer", over_layers(table, 1, [](double a, double b) { return std::min(a, b); })});
  html_ += line_plot(filled);
}

}  // namespace keyseat::train
