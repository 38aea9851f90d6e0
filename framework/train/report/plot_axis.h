// Axes of a plot: the mapping of values to the picture, and the grid with its labels.
#pragma once

#include <string>
#include <vector>

namespace keyseat::train {

struct Range {
  double low = 0, high = -1;  // empty
  bool empty() const { return high < low; }
  void include(double value);  // ignores what is not finite
};

// Where an axis has its lines: at multiples of 1, 2 or 5 times a power of ten.
std::vector<double> nice_ticks(Range range, int about);

class Frame {
 public:
  // Small enough that labels stay readable where a phone shows the picture at three quarters.
  static constexpr int kWidth = 440, kHeight = 236;

  // `y` is widened to the next ticks; a linear axis begins at zero where no value is below it.
  Frame(const std::vector<double>& x, Range y, bool logarithmic);

  double x_at(double value) const;
  double y_at(double value) const;
  std::string grid() const;

 private:
  Range x_, y_;
  bool logarithmic_;
  std::vector<double> y_ticks_;
};

}  // namespace keyseat::train
