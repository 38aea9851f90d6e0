// Plots as inline SVG figures: no script, no file beside the page. Colours are the page's CSS
// variables --c0 .. --c8, so that they follow its light or dark scheme. Free of LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace keyseat::train {

struct Series {
  std::string label;
  std::vector<double> values;  // one per step; NaN leaves a gap
};

struct Plot {
  std::string title;
  std::string unit;    // of the values: "ms", "tokens/s"; may be empty
  std::string notice;  // shown on the plot itself; may be empty
  std::string remark;  // under the plot; may be empty
  std::vector<int64_t> steps = {};
  std::vector<Series> series = {};
  bool wide = false;                // over all columns of the page
  bool dotted = false;              // values of single steps with gaps between them: always dots
  bool may_be_logarithmic = false;  // log scale where positive values span more than a factor 50
};

// More steps than this are drawn as the mean of neighbours inside the band of their extremes.
inline constexpr size_t kPlotPoints = 500;
// Areas need fewer, or their edges are noise.
inline constexpr size_t kStackedPoints = 120;

// Empty where no series has a finite value.
std::string line_plot(const Plot& plot);
// Areas on top of each other, the first series at the bottom.
std::string stacked_plot(const Plot& plot);

struct HeatMap {
  std::string title, remark;
  std::string row_word, column_word;                              // "layer", "expert"
  std::vector<std::pair<std::string, std::vector<double>>> rows;  // value 1 is the expected one
};
std::string heat_map(const HeatMap& map);

// &, <, >, " and ' as entities; bytes that HTML does not allow become U+FFFD.
std::string escape_html(const std::string& text);
// Four significant digits, "12.3k" from 10,000 on; "nan" and "inf" as such.
std::string number_text(double value);
std::string count_text(int64_t count, const std::string& word);  // "1 step", "2 steps"

}  // namespace keyseat::train
