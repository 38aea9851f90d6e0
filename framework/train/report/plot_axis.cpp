#include "train/report/plot_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/report/plot.h"

namespace keyseat::train {

namespace {

constexpr double kLeft = 54, kRight = 10, kTop = 8, kBottom = 36;

// The powers of ten around the range, and 2 and 5 times them where it spans few.
std::vector<double> log_ticks(Range range) {
  std::vector<double> ticks;
  const double decades = std::log10(range.high / range.low);
  const int every = static_cast<int>(std::ceil(decades / 6));
  const int first = static_cast<int>(std::floor(std::log10(range.low)));
  const int last = static_cast<int>(std::ceil(std::log10(range.high)));
  for (int power = first; power <= last; power += every) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && decades > 2.5) continue;
      ticks.push_back(factor * std::pow(10.0, power));
    }
  }
  return ticks;
}

}  // namespace

void Range::include(double value) {
  if (!std::isfinite(value)) return;
  if (empty()) {
    low = high = value;
  } else {
    low = std::min(low, value), high = std::max(high, value);
  }
}

std::vector<double> nice_ticks(Range range, int about) {
  const double span = range.high - range.low;
  if (!(span > 0)) return {range.low};
  const double raw = span / about, power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (raw > step * 1.001) step = factor * power;
  }
  std::vector<double> ticks;
  const double first = std::floor(range.low / step + 1e-9);
  for (double k = first; k * step < range.high + step * (1 - 1e-9); ++k) ticks.push_back(k * step);
  return ticks;
}

Frame::Frame(const std::vector<double>& x, Range y, bool logarithmic) : logarithmic_(logarithmic) {
  for (const double value : x) x_.include(value);
  if (x_.high - x_.low < 1) {
    const double middle = 0.5 * (x_.low + x_.high);
    x_ = {middle - 0.5, middle + 0.5};
  }
  if (logarithmic_) {
    y_ = {y.low / 1.15, y.high * 1.15};
    for (const double tick : log_ticks(y_)) {
      if (tick >= y_.low && tick <= y_.high) y_ticks_.push_back(tick);
    }
    return;
  }
  if (y.low > 0) y.low = 0;
  if (y.high - y.low <= 1e-300) y.high = y.low + 1;
  y_ticks_ = nice_ticks(y, 5);
  y_ = {y_ticks_.front(), y_ticks_.back()};
}

double Frame::x_at(double value) const {
  return kLeft + (value - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight);
}

double Frame::y_at(double value) const {
  const double share = logarithmic_ ? std::log(value / y_.low) / std::log(y_.high / y_.low)
                                    : (value - y_.low) / (y_.high - y_.low);
  return kHeight - kBottom - share * (kHeight - kTop - kBottom);
}

std::string Frame::grid() const {
  std::string svg;
  for (const double tick : y_ticks_) {
    const double y = y_at(tick);
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>",
        kLeft, y, kWidth - kRight, kLeft - 6, y + 4, number_text(tick));
  }
  const double base = kHeight - kBottom;
  for (const double tick : nice_ticks(x_, 5)) {
    // Steps are whole numbers; the last nice tick may lie outside.
    if (tick != std::round(tick) || tick < x_.low || tick > x_.high) continue;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", x_at(tick),
                       base + 15, number_text(tick));
  }
  svg += fmt::format("<path class=\"axis\" d=\"M{} {}H{}\"/>", kLeft, base, kWidth - kRight);
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">step</text>",
                     kLeft + (kWidth - kLeft - kRight) / 2, base + 31);
  return svg;
}

}  // namespace keyseat::train
