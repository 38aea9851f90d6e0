#include "train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "keyseat/status.h"
#include "train/report/page_style.h"
#include "train/report/plot.h"
#include "train/report/run_record.h"

namespace keyseat::train {

namespace {

// The timing window of 6-measuring: the median of the last 10 of at least 50 steps.
constexpr size_t kWindowSteps = 10, kShortestTiming = 50;

double last(const std::vector<double>& values) { return values.empty() ? NAN : values.back(); }

double window_median(const std::vector<double>& values) {
  std::vector<double> window(
      values.end() - static_cast<long>(std::min(values.size(), kWindowSteps)), values.end());
  std::erase_if(window, [](double value) { return !std::isfinite(value); });
  if (window.empty()) return NAN;
  std::sort(window.begin(), window.end());
  return 0.5 * (window[window.size() / 2] + window[(window.size() - 1) / 2]);
}

std::string bytes_text(double bytes) {
  return bytes >= 1 << 30 ? fmt::format("{:.2f} GiB", bytes / (1 << 30))
                          : fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string tile(const std::string& what, const std::string& value,
                 const std::string& remark = "") {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><small>{}</small></div>\n",
                     escape_html(what), escape_html(value), escape_html(remark));
}

std::string row(const std::string& name, const std::string& value) {
  return fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape_html(name),
                     escape_html(value));
}

class Page {
 public:
  explicit Page(const RunRecord& run) : run_(run) {}

  std::string html() {
    const std::string name = run_.name.empty() ? "run" : run_.name;
    html_ = fmt::format(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
        "name=\"viewport\" "
        "content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n"
        "<title>{} - Keyseat</title>\n<style>{}</style></head><body>\n<h1>{}</h1>\n"
        "<p class=\"sub\">Keyseat training run</p>\n",
        escape_html(name), kPageStyle, escape_html(name));
    if (!run_.notice.empty()) html_ += "<p class=\"notice\">" + escape_html(run_.notice) + "</p>\n";
    if (run_.unreadable_lines > 0)
      html_ += fmt::format(
          "<p class=\"notice\">{} lines of metrics.jsonl cannot be read and are "
          "left out</p>\n",
          run_.unreadable_lines);
    key_figures();
    learning();
    throughput();
    experts();
    workload();
    tables();
    return html_ + "</body></html>\n";
  }

 private:
  void key_figures() {
    html_ += "<div class=\"tiles\">\n";
    const std::string& not_timed = run_.notice;
    const std::string window = run_.steps.size() < kShortestTiming
                                   ? fmt::format("median of the last {}; too short a run to quote",
                                                 std::min(run_.steps.size(), kWindowSteps))
                                   : fmt::format("median of the last {} steps", kWindowSteps);
    const auto timed = [&](const char* what, const std::string& value) {
      html_ += tile(what, value, not_timed.empty() ? window : not_timed);
    };
    html_ += tile("steps", fmt::format("{}", run_.steps.size()),
                  run_.planned_steps > 0 ? fmt::format("of {}", run_.planned_steps) : "");
    html_ += tile("final loss", number_text(last(run_.column("loss"))),
                  run_.column("loss_ce").empty()
                      ? ""
                      : "cross-entropy " + number_text(last(run_.column("loss_ce"))));
    if (!run_.evaluations.empty()) {
      const Evaluation& eval = run_.evaluations.back();
      html_ += tile("held-out accuracy", percent(eval.accuracy),
                    fmt::format("{} of {}, after step {}", eval.correct, eval.samples, eval.step));
    }
    timed("useful tokens/s", number_text(window_median(run_.column("useful_tokens_per_second"))));
    timed("image tokens/s", number_text(window_median(run_.column("image_tokens_per_second"))));
    timed("time per step",
          fmt::format("{} ms", number_text(1e3 * window_median(run_.column("seconds")))));
    html_ += tile("padding share", percent(window_median(run_.column("padding_share"))),
                  "of the rows' slots");
    if (!run_.column("peak_memory_bytes").empty())
      html_ += tile("memory peak", bytes_text(last(run_.column("peak_memory_bytes"))),
                    "of tensors, process wide");
    html_ += "</div>\n";
    non_finite();
  }

  void non_finite() {
    if (run_.non_finite.empty()) return;
    html_ += "<p class=\"notice\">not finite:";
    constexpr size_t kShown = 8;
    for (size_t i = 0; i < std::min(kShown, run_.non_finite.size()); ++i) {
      const NonFinite& at = run_.non_finite[i];
      html_ +=
          fmt::format(" {} {} at step {};", escape_html(at.field), escape_html(at.text), at.step);
    }
    html_.back() = '.';
    if (run_.non_finite.size() > kShown)
      html_ += fmt::format(" {} more.", run_.non_finite.size() - kShown);
    html_ += "</p>\n";
  }

  Plot plot(const std::string& title, const std::string& unit) const {
    Plot out;
    out.title = title;
    out.unit = unit;
    out.steps = run_.steps;
    return out;
  }

  std::string line(const std::string& title, const std::string& unit,
                   const std::vector<std::pair<std::string, std::string>>& fields,
                   const std::string& notice = "") const {
    Plot out = plot(title, unit);
    out.notice = notice;
    for (const auto& [label, field] : fields) {
      if (!run_.column(field).empty()) out.series.push_back({label, run_.column(field)});
    }
    return out.series.empty() ? "" : line_plot(out);
  }

  void learning() {
    html_ += "<h2>Learning</h2>\n<div class=\"plots\">\n";
    Plot loss = plot("Loss", "");
    loss.may_be_logarithmic = true;
    loss.series.push_back({"total", run_.column("loss")});
    for (const auto& [field, values] : run_.columns) {
      if (field.starts_with("loss_")) loss.series.push_back({field.substr(5), values});
    }
    loss.remark = "total: the weighted sum that is trained on; its terms as they are.";
    html_ += line_plot(loss);
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
    html_ += line("Learning rate", "", {{"", "lr"}});
    html_ += line("Gradient norm", "before clipping", {{"", "grad_norm"}});
    html_ += "</div>\n";
  }

  void throughput() {
    html_ += "<h2>Throughput</h2>\n<div class=\"plots\">\n";
    html_ += line("Tokens per second", "tokens/s",
                  {{"useful tokens", "useful_tokens_per_second"},
                   {"of them image tokens", "image_tokens_per_second"}},
                  run_.notice);
    Plot time = plot("Time of a step by component", "ms");
    time.notice = run_.notice;
    for (const std::string& name : run_.components())
      time.series.push_back({name, run_.column("milliseconds." + name)});
    html_ += stacked_plot(time);
    html_ += line("Memory peak", "GiB", {{"", "peak_memory_gib"}});
    html_ += "</div>\n";
    component_table();
  }

  void component_table() {
    const std::vector<std::string> names = run_.components();
    if (names.empty()) return;
    html_ += "<h2>Milliseconds per component</h2>\n<div class=\"card\">";
    if (!run_.notice.empty()) html_ += "<p class=\"notice\">" + escape_html(run_.notice) + "</p>";
    html_ +=
        "<table><tr><th>component</th><th class=\"n\">ms</th><th class=\"n\">share</th></tr>\n";
    double sum = 0;
    for (const std::string& name : names) sum += window_median(run_.column("milliseconds." + name));
    for (const std::string& name : names) {
      const double time = window_median(run_.column("milliseconds." + name));
      html_ +=
          fmt::format("<tr><td>{}</td><td class=\"n\">{:.1f}</td><td class=\"n\">{}</td></tr>\n",
                      escape_html(name), time, sum > 0 ? percent(time / sum) : "");
    }
    html_ += fmt::format(
        "</table></div>\n<p class=\"remark\">Median of the last {} steps. The "
        "dispatcher's time is not in that of the blocks.</p>\n",
        std::min(run_.steps.size(), kWindowSteps));
  }

  void experts() {
    if (run_.expert_load.empty()) return;
    HeatMap map;
    map.title = "Load of each expert, by layer";
    map.row_word = "layer";
    map.column_word = "expert";
    double worst = 0;
    int64_t idle = 0;
    for (const auto& [layer, counts] : run_.expert_load) {
      double sum = 0;
      for (const int64_t count : counts) sum += static_cast<double>(count);
      std::vector<double> shares;
      for (const int64_t count : counts) {
        const double expected = sum / static_cast<double>(counts.size());
        shares.push_back(expected > 0 ? static_cast<double>(count) / expected : 0);
        worst = std::max(worst, shares.back());
        idle += count == 0 ? 1 : 0;
      }
      map.rows.push_back({layer, std::move(shares)});
    }
    map.remark = fmt::format(
        "Tokens of the last {} steps, 1 is an even share. Highest {:.2f}; {} experts without a "
        "token.",
        run_.expert_load_steps, worst, idle);
    html_ += "<h2>Experts</h2>\n<div class=\"plots\">\n" + heat_map(map) + "</div>\n";
  }

  void workload() {
    html_ += "<h2>Workload</h2>\n<div class=\"card\"><table>\n";
    for (const auto& [name, value] : run_.labels) html_ += row(name, value);
    for (const auto& [kind, name] : run_.plugins) html_ += row(kind, name);
    const auto per_step = [&](const char* name, const char* field) {
      const double value = window_median(run_.column(field));
      if (std::isfinite(value)) html_ += row(std::string(name) + " per step", number_text(value));
    };
    per_step("samples", "samples");
    per_step("useful tokens", "useful_tokens");
    per_step("image tokens", "image_tokens");
    per_step("supervised tokens", "supervised_tokens");
    per_step("images", "images");
    per_step("patches", "patches");
    html_ +=
        "</table></div>\n<p class=\"remark\">Two runs may be ranked only if these agree.</p>\n";
  }

  void tables() {
    if (!run_.failures.empty()) {
      html_ +=
          "<h2>Samples that failed</h2>\n<div class=\"card\"><table><tr><th>reason</th><th "
          "class=\"n\">count</th><th>example</th></tr>\n";
      for (const DataFailure& failure : run_.failures)
        html_ +=
            fmt::format("<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
                        escape_html(failure.reason), failure.count, escape_html(failure.example));
      html_ += "</table></div>\n";
    }
    if (!run_.evaluations.empty()) {
      html_ +=
          "<h2>Evaluations</h2>\n<div class=\"card\"><table><tr><th class=\"n\">step</th><th "
          "class=\"n\">accuracy</th><th class=\"n\">correct</th><th "
          "class=\"n\">samples</th></tr>\n";
      for (const Evaluation& eval : run_.evaluations)
        html_ += fmt::format(
            "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
            "class=\"n\">{}</td></tr>\n",
            eval.step, percent(eval.accuracy), eval.correct, eval.samples);
      html_ += "</table></div>\n";
    }
    html_ += "<details class=\"card\"><summary>The whole configuration</summary><pre>" +
             escape_html(run_.config_text) + "</pre></details>\n";
  }

  const RunRecord& run_;
  std::string html_;
};

}  // namespace

void write_report(const std::string& run_dir, const std::string& path) {
  RunRecord run = read_run(run_dir);
  std::vector<double> peak = run.column("peak_memory_bytes");
  for (double& value : peak) value /= 1 << 30;
  if (!peak.empty()) run.columns["peak_memory_gib"] = std::move(peak);
  std::ofstream stream(path, std::ios::binary);
  stream << Page(run).html();
  stream.close();
  if (!stream)
    throw Error(
        Problem{Code::kR7File, {path, 0, 0}, "cannot write the report", std::strerror(errno), ""});
}

}  // namespace keyseat::train
