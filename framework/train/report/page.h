// The page of report.html out of a run's record. Free of LibTorch.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "train/report/plot.h"
#include "train/report/run_record.h"

namespace keyseat::train {

class Page {
 public:
  explicit Page(const RunRecord& run) : run_(run) {}

  std::string html();

 private:
  // The sections, in the order of the page; each adds to html_.
  void head();
  void key_figures();
  void not_finite();
  void learning();
  void throughput();
  void memory();
  void samples();
  void experts();
  void entropy(const std::string& title, const std::string& table, const std::string& remark);
  void component_table();
  void workload_table();
  void evaluation_table();
  void failure_table();
  void configuration();

  using Fields = std::vector<std::pair<std::string, std::string>>;  // label, column
  Plot plot(const std::string& title, const std::string& unit) const;
  // A line per field that the run has; empty where it has none.
  std::string lines(const Plot& plot, const Fields& fields) const;
  std::string evaluation_plot(const std::string& title, double Evaluation::*value) const;
  // The values of all layers of a table ("router_entropy.3"), combined step by step.
  std::vector<double> over_layers(const std::string& table, double start,
                                  const std::function<double(double, double)>& combine) const;

  const RunRecord& run_;
  std::string html_;
};

// Steps whose median a key figure is (6-measuring), and how long a run must be for a timing.
inline constexpr size_t kWindowSteps = 10, kShortestTiming = 50;

// The median of the last kWindowSteps values; NaN where none is finite.
double window_median(const std::vector<double>& values);

double last(const std::vector<double>& values);  // NaN where there is none
// `numerator` / `denominator`, step by step.
std::vector<double> ratio(const std::vector<double>& numerator,
                          const std::vector<double>& denominator);

std::string percent_text(double share);
std::string notice_html(const std::string& notice);  // empty for an empty notice

}  // namespace keyseat::train
