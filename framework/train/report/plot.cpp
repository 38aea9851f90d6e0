#include "train/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "train/report/plot_axis.h"

namespace keyseat::train {

namespace {

constexpr int kColors = 9;
constexpr size_t kMarkedPoints = 40;  // so few points are drawn as dots too

// Neighbouring steps drawn as one point.
struct Reduced {
  std::vector<double> x;
  std::vector<std::vector<double>> mean, low, high;  // [series][point]
  bool reduced = false;
};

Reduced reduce(const Plot& plot, size_t most) {
  const size_t steps = plot.steps.size(), points = std::min(steps, most);
  Reduced out;
  out.reduced = points < steps;
  const size_t count = plot.series.size();
  out.mean.resize(count), out.low.resize(count), out.high.resize(count);
  for (size_t p = 0; p < points; ++p) {
    const size_t begin = p * steps / points, end = (p + 1) * steps / points;
    out.x.push_back(0.5 * static_cast<double>(plot.steps[begin] + plot.steps[end - 1]));
    for (size_t s = 0; s < count; ++s) {
      double sum = 0, low = std::numeric_limits<double>::infinity(), high = -low;
      int finite = 0;
      for (size_t i = begin; i < end && i < plot.series[s].values.size(); ++i) {
        const double value = plot.series[s].values[i];
        if (!std::isfinite(value)) continue;
        sum += value, ++finite;
        low = std::min(low, value), high = std::max(high, value);
      }
      const double none = std::numeric_limits<double>::quiet_NaN();
      out.mean[s].push_back(finite ? sum / finite : none);
      out.low[s].push_back(finite ? low : none);
      out.high[s].push_back(finite ? high : none);
    }
  }
  return out;
}

// "M x y L x y ...", begun anew after every gap.
std::string line_path(const std::vector<double>& x, const std::vector<double>& y,
                      const Frame& frame) {
  std::string path;
  bool open = false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(y[i])) {
      open = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", open ? "L" : "M", frame.x_at(x[i]), frame.y_at(y[i]));
    open = true;
  }
  return path;
}

// The closed area between `low` and `high`, one piece per stretch without gaps.
std::string area_path(const std::vector<double>& x, const std::vector<double>& low,
                      const std::vector<double>& high, const Frame& frame) {
  std::string path;
  for (size_t begin = 0; begin < x.size();) {
    size_t end = begin;
    while (end < x.size() && std::isfinite(low[end]) && std::isfinite(high[end])) ++end;
    for (size_t i = begin; i < end; ++i)
      path += fmt::format("{}{:.1f} {:.1f}", i == begin ? "M" : "L", frame.x_at(x[i]),
                          frame.y_at(high[i]));
    for (size_t i = end; i > begin; --i)
      path += fmt::format("L{:.1f} {:.1f}", frame.x_at(x[i - 1]), frame.y_at(low[i - 1]));
    if (end > begin) path += "Z";
    begin = end + 1;
  }
  return path;
}

std::string dots(const std::vector<double>& x, const std::vector<double>& y, const Frame& frame,
                 size_t color) {
  std::string svg;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(y[i])) continue;
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"var(--c{})\"/>",
                       frame.x_at(x[i]), frame.y_at(y[i]), color % kColors);
  }
  return svg;
}

Range extent(const std::vector<std::vector<double>>& low,
             const std::vector<std::vector<double>>& high) {
  Range range;
  for (const auto& values : low)
    for (const double value : values) range.include(value);
  for (const auto& values : high)
    for (const double value : values) range.include(value);
  return range;
}

std::string legend(const Plot& plot) {
  if (plot.series.size() < 2) return "";
  std::string html = "<ul class=\"legend\">";
  for (size_t s = 0; s < plot.series.size(); ++s)
    html += fmt::format("<li><i style=\"background:var(--c{})\"></i>{}</li>", s % kColors,
                        escape_html(plot.series[s].label));
  return html + "</ul>";
}

std::string figure(const Plot& plot, const std::string& svg, const std::string& axis_words,
                   size_t points) {
  std::string html = fmt::format("<figure{}><figcaption>{}", plot.wide ? " class=\"wide\"" : "",
                                 escape_html(plot.title));
  const std::string unit = plot.unit.empty() || axis_words.empty() ? plot.unit + axis_words
                                                                   : plot.unit + ", " + axis_words;
  if (!unit.empty()) html += " <small>" + escape_html(unit) + "</small>";
  html += "</figcaption>";
  if (!plot.notice.empty()) html += "<p class=\"notice\">" + escape_html(plot.notice) + "</p>";
  html += svg + legend(plot);
  std::string remark = plot.remark;
  if (points < plot.steps.size()) {
    if (!remark.empty()) remark += " ";
    remark += fmt::format(
        "{} steps in {} points: mean of neighbours{}.", plot.steps.size(), points,
        points == kPlotPoints && plot.series.size() == 1 ? ", band from lowest to highest" : "");
  }
  if (!remark.empty()) html += "<p class=\"remark\">" + escape_html(remark) + "</p>";
  return html + "</figure>\n";
}

std::string svg_begin(const std::string& title) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", Frame::kWidth,
                     Frame::kHeight, escape_html(title));
}

}  // namespace

std::string line_plot(const Plot& plot) {
  const Reduced points = reduce(plot, kPlotPoints);
  const bool band = points.reduced && plot.series.size() == 1;
  Range y = band ? extent(points.low, points.high) : extent(points.mean, points.mean);
  if (y.empty()) return "";
  const bool logarithmic = plot.may_be_logarithmic && y.low > 0 && y.high / y.low > 50;
  const Frame frame(points.x, y, logarithmic);
  std::string svg = svg_begin(plot.title) + frame.grid();
  // The first series is the one to see: it is drawn last, on top.
  for (size_t s = plot.series.size(); s-- > 0;) {
    if (band)
      svg += fmt::format("<path class=\"band\" fill=\"var(--c{})\" d=\"{}\"/>", s % kColors,
                         area_path(points.x, points.low[s], points.high[s], frame));
    svg += fmt::format("<path class=\"line\" stroke=\"var(--c{})\" d=\"{}\"/>", s % kColors,
                       line_path(points.x, points.mean[s], frame));
    if (points.x.size() <= kMarkedPoints || plot.dotted)
      svg += dots(points.x, points.mean[s], frame, s);
  }
  return figure(plot, svg + "</svg>", logarithmic ? "log scale" : "", points.x.size());
}

std::string stacked_plot(const Plot& plot) {
  Reduced points = reduce(plot, kStackedPoints);
  const size_t drawn = points.x.size();
  // A single step is drawn as a bar: two points at the edges.
  if (points.x.size() == 1) {
    points.x = {points.x[0] - 0.4, points.x[0] + 0.4};
    for (auto& values : points.mean) values.push_back(values[0]);
  }
  std::vector<std::vector<double>> tops(1, std::vector<double>(points.x.size(), 0.0));
  bool any = false;
  for (const auto& values : points.mean) {
    std::vector<double> top = tops.back();
    for (size_t i = 0; i < top.size(); ++i) {
      if (std::isfinite(values[i])) top[i] += values[i], any = true;
    }
    tops.push_back(std::move(top));
  }
  if (!any) return "";
  const Frame frame(points.x, extent(tops, tops), /*logarithmic=*/false);
  std::string svg = svg_begin(plot.title) + frame.grid();
  for (size_t s = 0; s < plot.series.size(); ++s)
    svg += fmt::format("<path fill=\"var(--c{})\" d=\"{}\"/>", s % kColors,
                       area_path(points.x, tops[s], tops[s + 1], frame));
  return figure(plot, svg + "</svg>", "stacked", drawn);
}

std::string heat_map(const HeatMap& map) {
  size_t columns = 0;
  for (const auto& [name, values] : map.rows) columns = std::max(columns, values.size());
  if (columns == 0) return "";
  constexpr double kLeft = 52, kTop = 6, kBottom = 34, kPlotWidth = Frame::kWidth - kLeft - 8;
  constexpr size_t kTitledCells = 2048, kNumberedColumns = 12, kWideColumns = 32;
  const double width = kPlotWidth / static_cast<double>(columns);
  const double height = std::clamp(240.0 / static_cast<double>(map.rows.size()), 6.0, 26.0);
  const double bottom = kTop + height * static_cast<double>(map.rows.size());
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {:.0f}\" role=\"img\" aria-label=\"{}\">",
                                Frame::kWidth, bottom + kBottom, escape_html(map.title));
  const size_t label_every = height < 12 ? static_cast<size_t>(std::ceil(12 / height)) : 1;
  for (size_t r = 0; r < map.rows.size(); ++r) {
    const auto& [name, values] = map.rows[r];
    const double y = kTop + height * static_cast<double>(r);
    if (r % label_every == 0)
      svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 6,
                         y + height / 2 + 4, escape_html(name));
    for (size_t c = 0; c < values.size(); ++c) {
      // Below the expected load one hue, above it another; both fade out towards it.
      const double distance = std::clamp(values[c] - 1, -1.0, 1.0);
      const double x = kLeft + width * static_cast<double>(c);
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"var(--{})\" "
          "fill-opacity=\"{:.2f}\"",
          x, y, std::max(width - 0.6, 0.5), height - 0.6, distance < 0 ? "c0" : "c3",
          0.06 + 0.6 * std::abs(distance));
      if (map.rows.size() * columns <= kTitledCells)
        svg += fmt::format("><title>{} {}, {} {}: {:.2f}</title></rect>", escape_html(map.row_word),
                           escape_html(name), escape_html(map.column_word), c, values[c]);
      else
        svg += "/>";
      if (columns <= kNumberedColumns && height >= 16)
        svg += fmt::format(
            "<text class=\"cell\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">"
            "{:.2f}</text>",
            x + width / 2, y + height / 2 + 4, values[c]);
    }
  }
  const size_t every = (columns + 15) / 16;
  for (size_t c = 0; c < columns; c += every)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                       kLeft + width * (static_cast<double>(c) + 0.5), bottom + 14, c);
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                     kLeft + kPlotWidth / 2, bottom + 29, escape_html(map.column_word));
  Plot plot;
  plot.title = map.title;
  plot.remark = map.remark;
  plot.wide = columns > kWideColumns;
  return figure(plot, svg + "</svg>", "", /*points=*/0);
}

}  // namespace keyseat::train
