#include "train/report/bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "train/report/plot.h"
#include "train/report/plot_axis.h"

namespace keyseat::train {

namespace {

struct Bar {
  int64_t begin = 0, end = 0;  // values from begin to below end
  int64_t count = 0;
};

// Every bucket from the smallest to the largest, the empty ones too.
std::vector<Bar> all_buckets(const Histogram& counts) {
  std::vector<Bar> bars;
  const int64_t last = counts.rbegin()->first;
  for (int64_t begin = counts.begin()->first; begin <= last;) {
    const int64_t end = begin + bucket_width(begin);
    const auto found = counts.find(begin);
    bars.push_back({begin, end, found == counts.end() ? 0 : found->second});
    begin = end;
  }
  while (bars.size() > kBars) {
    std::vector<Bar> pairs;
    for (size_t i = 0; i < bars.size(); i += 2) {
      pairs.push_back(bars[i]);
      if (i + 1 == bars.size()) break;
      pairs.back().end = bars[i + 1].end;
      pairs.back().count += bars[i + 1].count;
    }
    bars = std::move(pairs);
  }
  return bars;
}

std::string range_text(const Bar& bar, double scale) {
  const double begin = static_cast<double>(bar.begin) * scale;
  if (bar.end - bar.begin == 1) return number_text(begin);
  return number_text(begin) + " to below " + number_text(static_cast<double>(bar.end) * scale);
}

}  // namespace

std::string bar_plot(const Bars& plot) {
  Histogram counts = plot.counts;
  std::erase_if(counts, [](const auto& entry) { return entry.second <= 0; });
  if (counts.empty()) return "";
  const std::vector<Bar> bars = all_buckets(counts);
  constexpr double kLeft = 52, kRight = 8, kTop = 10, kBottom = 22;
  constexpr double kBase = Frame::kHeight - kBottom, kHeight = kBase - kTop;
  const double width = (Frame::kWidth - kLeft - kRight) / static_cast<double>(bars.size());
  int64_t highest = 0, total = 0;
  for (const Bar& bar : bars) highest = std::max(highest, bar.count), total += bar.count;
  const auto ticks = nice_ticks({0, static_cast<double>(highest)}, 4);
  const double top = std::max(ticks.empty() ? 0 : ticks.back(), static_cast<double>(highest));
  const auto y_at = [&](double count) { return kBase - kHeight * count / top; };
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
                                Frame::kWidth, Frame::kHeight, escape_html(plot.title));
  for (const double tick : ticks) {
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>",
        kLeft, y_at(tick), Frame::kWidth - kRight, kLeft - 6, y_at(tick) + 4, number_text(tick));
  }
  const size_t every = (bars.size() + 7) / 8;
  for (size_t i = 0; i < bars.size(); ++i) {
    const double x = kLeft + width * static_cast<double>(i);
    const double y = y_at(static_cast<double>(bars[i].count));
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"var(--c0)\">"
        "<title>{}: {}</title></rect>",
        x + 0.5, y, std::max(std::min(width - 1, 60.0), 0.5), kBase - y,
        range_text(bars[i], plot.scale), count_text(bars[i].count, plot.word));
    if (i % every == 0)
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"start\">{}</text>", x,
                         Frame::kHeight - 6,
                         number_text(static_cast<double>(bars[i].begin) * plot.scale));
  }
  const std::string unit =
      plot.unit.empty() ? "" : " <small>" + escape_html(plot.unit) + "</small>";
  return fmt::format(
      "<figure><figcaption>{}{}</figcaption>{}</svg><p class=\"remark\">{}; a bar is labelled with "
      "its lower end.</p></figure>\n",
      escape_html(plot.title), unit, svg, count_text(total, plot.word));
}

}  // namespace keyseat::train
