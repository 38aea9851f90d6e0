#include "train/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/report/page_style.h"

namespace keyseat::train {

namespace {

double last(const std::vector<double>& values) { return values.empty() ? NAN : values.back(); }

std::string bytes_text(double bytes) {
  return bytes >= 1 << 30 ? fmt::format("{:.2f} GiB", bytes / (1 << 30))
                          : fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

std::string tile(const std::string& what, const std::string& value, const std::string& remark) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><small>{}</small></div>\n",
                     escape_html(what), escape_html(value), escape_html(remark));
}

// `numerator` / `denominator`, step by step.
std::vector<double> ratio(const std::vector<double>& numerator,
                          const std::vector<double>& denominator) {
  std::vector<double> values;
  for (size_t i = 0; i < std::min(numerator.size(), denominator.size()); ++i)
    values.push_back(denominator[i] > 0 ? numerator[i] / denominator[i] : NAN);
  return values;
}

}  // namespace

double window_median(const std::vector<double>& values) {
  std::vector<double> window(
      values.end() - static_cast<long>(std::min(values.size(), kWindowSteps)), values.end());
  std::erase_if(window, [](double value) { return !std::isfinite(value); });
  if (window.empty()) return NAN;
  std::sort(window.begin(), window.end());
  return 0.5 * (window[window.size() / 2] + window[(window.size() - 1) / 2]);
}

std::string percent_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string notice_html(const std::string& notice) {
  return notice.empty() ? "" : "<p class=\"notice\">" + escape_html(notice) + "</p>\n";
}

std::string Page::html() {
  head();
  key_figures();
  not_finite();
  html_ += "<h2>Learning</h2>\n<div class=\"plots\">\n";
  learning();
  html_ += "</div>\n<h2>Throughput</h2>\n<div class=\"plots\">\n";
  throughput();
  html_ += "</div>\n";
  component_table();
  html_ += "<h2>Samples and experts</h2>\n<div class=\"plots\">\n";
  samples();
  experts();
  html_ += "</div>\n";
  workload_table();
  evaluation_table();
  failure_table();
  configuration();
  return html_ + "</body></html>\n";
}

void Page::head() {
  const std::string name = escape_html(run_.name.empty() ? "run" : run_.name);
  html_ = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{} - Keyseat</title>\n<style>{}</style></head><body>\n<h1>{}</h1>\n"
      "<p class=\"sub\">Keyseat training run</p>\n{}",
      name, kPageStyle, name, notice_html(run_.notice));
  if (run_.unreadable_lines > 0)
    html_ += notice_html("metrics.jsonl: " + count_text(run_.unreadable_lines, "line") +
                         " left out: cannot be read");
}

void Page::key_figures() {
  const std::string window =
      run_.steps.size() < kShortestTiming
          ? "too short a run to quote"
          : "median of the last " + count_text(static_cast<int64_t>(kWindowSteps), "step");
  const auto timed = [&](const char* what, const std::string& value) {
    html_ += tile(what, value, run_.notice.empty() ? window : run_.notice);
  };
  html_ += "<div class=\"tiles\">\n";
  html_ += tile("steps", fmt::format("{}", run_.steps.size()),
                run_.planned_steps > 0 ? fmt::format("of {}", run_.planned_steps) : "");
  const auto& ce = run_.column("loss_ce");
  html_ += tile("final loss", number_text(last(run_.column("loss"))),
                ce.empty() ? "" : "cross-entropy " + number_text(last(ce)));
  if (!run_.evaluations.empty()) {
    const Evaluation& eval = run_.evaluations.back();
    html_ += tile("held-out accuracy", percent_text(eval.accuracy),
                  fmt::format("{} of {}, after {}", eval.correct, eval.samples,
                              count_text(eval.step + 1, "step")));
  }
  timed("useful tokens/s", number_text(window_median(run_.column("useful_tokens_per_second"))));
  timed("image tokens/s", number_text(window_median(run_.column("image_tokens_per_second"))));
  timed("time per step", number_text(1e3 * window_median(run_.column("seconds"))) + " ms");
  html_ += tile("padding share", percent_text(window_median(run_.column("padding_share"))),
                "of the slots of a row");
  const auto& peak = run_.column("peak_memory_bytes");
  if (!peak.empty()) html_ += tile("memory peak", bytes_text(last(peak)), "of tensors");
  html_ += "</div>\n";
}

void Page::not_finite() {
  if (run_.non_finite.empty()) return;
  constexpr size_t kShown = 8;
  std::string text = "not finite:";
  for (size_t i = 0; i < std::min(kShown, run_.non_finite.size()); ++i) {
    const NonFinite& at = run_.non_finite[i];
    text += fmt::format("{} {} {} at step {}", i > 0 ? "," : "", at.field, at.text, at.step);
  }
  if (run_.non_finite.size() > kShown)
    text += fmt::format(", and {} more", run_.non_finite.size() - kShown);
  html_ += notice_html(text);
}

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
    Plot accuracy = plot("Held-out accuracy", "");
    accuracy.steps.clear();
    accuracy.series.push_back({"accuracy", {}});
    for (const Evaluation& eval : run_.evaluations) {
      accuracy.steps.push_back(eval.step);
      accuracy.series[0].values.push_back(eval.accuracy);
    }
    html_ += line_plot(accuracy);
  }
  html_ += lines(plot("Learning rate", ""), {{"", "lr"}});
  html_ += lines(plot("Gradient norm", "before clipping"), {{"", "grad_norm"}});
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
  const std::vector<double>& peak = run_.column("peak_memory_bytes");
  const bool large = last(peak) >= 1 << 30;
  Plot memory = plot("Memory peak", large ? "GiB" : "MiB");
  memory.series.push_back({"", peak});
  for (double& bytes : memory.series[0].values) bytes /= large ? 1 << 30 : 1 << 20;
  html_ += line_plot(memory);
}

void Page::samples() {
  Plot size = plot("Mean size of a sample", "tokens");
  size.remark = "Lengths and images one by one: keyseat data inspect.";
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
}

}  // namespace keyseat::train
