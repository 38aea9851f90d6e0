// Histograms as inline SVG figures. Free of LibTorch.
#pragma once

#include <string>

#include "train/histogram.h"

namespace keyseat::train {

struct Bars {
  std::string title;
  std::string unit;  // of the values
  std::string word;  // what is counted: "sample"
  Histogram counts;
  double scale = 1;  // shown value = bucket * scale
};

// More bars than this are drawn as sums of neighbours.
inline constexpr size_t kBars = 48;

// Empty where nothing was counted.
std::string bar_plot(const Bars& bars);

}  // namespace keyseat::train
