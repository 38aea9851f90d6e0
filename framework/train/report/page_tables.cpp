#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/report/page.h"

namespace keyseat::train {

namespace {

std::string row(const std::string& name, const std::string& value) {
  return fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape_html(name),
                     escape_html(value));
}

}  // namespace

void Page::component_table() {
  const std::vector<std::string> names = run_.components();
  if (names.empty()) return;
  html_ += "<h2>Milliseconds per component</h2>\n<div class=\"card\">" + notice_html(run_.notice) +
           "<table><tr><th>component</th><th class=\"n\">ms</th><th class=\"n\">share</th></tr>\n";
  std::vector<double> times;
  double sum = 0;
  for (const std::string& name : names) {
    times.push_back(window_median(run_.column("milliseconds." + name)));
    if (std::isfinite(times.back())) sum += times.back();
  }
  for (size_t i = 0; i < names.size(); ++i)
    html_ +=
        fmt::format("<tr><td>{}</td><td class=\"n\">{:.1f}</td><td class=\"n\">{}</td></tr>\n",
                    escape_html(names[i]), times[i], sum > 0 ? percent_text(times[i] / sum) : "");
  const auto window = static_cast<int64_t>(std::min(run_.steps.size(), kWindowSteps));
  html_ += fmt::format(
      "</table></div>\n<p class=\"remark\">Median of the last {}. The dispatcher's time is not in "
      "that of the blocks.</p>\n",
      count_text(window, "step"));
}

void Page::workload_table() {
  html_ += "<h2>Workload</h2>\n<div class=\"card\"><table>\n";
  for (const auto& [name, value] : run_.labels) html_ += row(name, value);
  for (const auto& [kind, name] : run_.plugins) html_ += row(kind, name);
  for (const auto& [name, field] : Fields{{"samples", "samples"},
                                          {"useful tokens", "useful_tokens"},
                                          {"image tokens", "image_tokens"},
                                          {"supervised tokens", "supervised_tokens"},
                                          {"images", "images"},
                                          {"patches", "patches"}}) {
    const double value = window_median(run_.column(field));
    if (std::isfinite(value)) html_ += row(name + " per step", number_text(value));
  }
  html_ +=
      "</table></div>\n<p class=\"remark\">Speeds of two runs may be ranked only if these "
      "agree.</p>\n";
}

void Page::evaluation_table() {
  if (run_.evaluations.empty()) return;
  html_ +=
      "<h2>Evaluations</h2>\n<div class=\"card\"><table><tr><th class=\"n\">after steps</th><th "
      "class=\"n\">loss</th><th class=\"n\">accuracy</th><th class=\"n\">correct</th><th "
      "class=\"n\">of</th></tr>\n";
  for (const Evaluation& eval : run_.evaluations) {
    const bool decoded = eval.samples > 0;
    html_ += fmt::format(
        "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
        eval.step + 1, std::isfinite(eval.loss) ? number_text(eval.loss) : "",
        decoded ? percent_text(eval.accuracy) : "", decoded ? std::to_string(eval.correct) : "",
        decoded ? std::to_string(eval.samples) : "");
  }
  html_ += "</table></div>\n";
}

void Page::failure_table() {
  if (run_.failures.empty()) return;
  html_ +=
      "<h2>Samples that failed</h2>\n<div class=\"card\"><table><tr><th>reason</th><th "
      "class=\"n\">count</th><th>example</th></tr>\n";
  for (const DataFailure& failure : run_.failures)
    html_ += fmt::format("<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
                         escape_html(failure.reason), failure.count, escape_html(failure.example));
  html_ += "</table></div>\n";
}

void Page::configuration() {
  html_ += "<details class=\"card\"><summary>The whole configuration</summary><pre>" +
           escape_html(run_.config_text) + "</pre></details>\n";
}

}  // namespace keyseat::train
