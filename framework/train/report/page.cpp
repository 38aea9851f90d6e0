#include "train/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/report/page_style.h"

namespace keyseat::train {

namespace {

std::string bytes_text(double bytes) {
  return bytes >= 1 << 30 ? fmt::format("{:.2f} GiB", bytes / (1 << 30))
                          : fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

std::string tile(const std::string& what, const std::string& value, const std::string& remark) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><small>{}</small></div>\n",
                     escape_html(what), escape_html(value), escape_html(remark));
}

}  // namespace

double last(const std::vector<double>& values) { return values.empty() ? NAN : values.back(); }

std::vector<double> ratio(const std::vector<double>& numerator,
                          const std::vector<double>& denominator) {
  std::vector<double> values;
  for (size_t i = 0; i < std::min(numerator.size(), denominator.size()); ++i)
    values.push_back(denominator[i] > 0 ? numerator[i] / denominator[i] : NAN);
  return values;
}

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
    const std::string after = "after " + count_text(eval.step + 1, "step");
    if (std::isfinite(eval.loss)) html_ += tile("held-out loss", number_text(eval.loss), after);
    if (eval.samples > 0)
      html_ += tile("held-out accuracy", percent_text(eval.accuracy),
                    fmt::format("{} of {}, {}", eval.correct, eval.samples, after));
  }
  timed("useful tokens/s", number_text(window_median(run_.column("useful_tokens_per_second"))));
  timed("image tokens/s", number_text(window_median(run_.column("image_tokens_per_second"))));
  const double host = window_median(ratio(run_.column("host_seconds"), run_.column("seconds")));
  timed("time per step", number_text(1e3 * window_median(run_.column("seconds"))) + " ms");
  if (std::isfinite(host)) timed("host's share of a step", percent_text(host));
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

}  // namespace keyseat::train
