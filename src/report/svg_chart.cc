#include "report/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

namespace shale {
namespace {

constexpr double kLeft = 64, kRight = 650, kTop = 44, kBottom = 370;  // of the plot; the legend stands right of it
constexpr double kTicksWanted = 6;
constexpr std::size_t kPointsApart = 30;  // more of them run into one another: drawn small
// Paul Tol's "muted", which colour-blind readers tell apart; dashes tell further lines apart.
constexpr std::array<const char*, 9> kColours = {"#332288", "#117733", "#cc6677", "#88ccee", "#ddcc77",
                                                 "#aa4499", "#44aa99", "#882255", "#999933"};

struct Axis {
  double first, last;
  bool log;
  double pixel_first, pixel_last;

  double at(double value) const {
    const double from = log ? std::log10(first) : first, to = log ? std::log10(last) : last;
    const double share = to > from ? ((log ? std::log10(value) : value) - from) / (to - from) : 0.5;
    return pixel_first + share * (pixel_last - pixel_first);
  }

  std::vector<double> ticks() const {
    std::vector<double> found;
    if (log) {
      const bool many_decades = std::log10(last / first) > 3;
      for (double decade = std::pow(10, std::floor(std::log10(first))); decade <= last; decade *= 10) {
        for (const double step : {1.0, 2.0, 5.0}) {
          const double value = decade * step;
          if (value >= first * 0.999 && value <= last * 1.001 && (step == 1 || !many_decades)) found.push_back(value);
        }
      }
      return found;
    }
    const double rough = (last - first) / kTicksWanted;
    if (!(rough > 0)) return {first};
    const double magnitude = std::pow(10, std::floor(std::log10(rough)));
    const double ratio = rough / magnitude;
    const double step = magnitude * (ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1);
    for (double k = std::ceil(first / step - 1e-9) + 0.0; k * step <= last + 1e-9 * step; ++k)
      found.push_back(k * step);
    return found;
  }
};

// 1500 → "1.5k".
std::string short_number(double value) {
  for (const auto& [unit, letter] : {std::pair(1e9, "G"), std::pair(1e6, "M"), std::pair(1e3, "k")}) {
    if (std::abs(value) >= unit) return fmt::format("{:.4g}{}", value / unit, letter);
  }
  return fmt::format("{:.4g}", value);
}

Axis x_axis(const Chart& chart) {
  double first = std::numeric_limits<double>::infinity(), last = -first;
  for (const ChartLine& line : chart.lines) {
    for (const auto& [x, y] : line.points) {
      first = std::min(first, x);
      last = std::max(last, x);
    }
  }
  if (first > last) first = last = 1;
  return {first, last, chart.log_x, kLeft, kRight};
}

Axis y_axis(const Chart& chart) {
  double last = 0;
  for (const ChartLine& line : chart.lines) {
    for (const auto& [x, y] : line.points) last = std::max(last, y);
  }
  return {0, last > 0 ? last * 1.05 : 1, false, kBottom, kTop};
}

void draw_axes(std::string& out, const Chart& chart, const Axis& x, const Axis& y) {
  const auto to = std::back_inserter(out);
  for (const double value : y.ticks()) {
    fmt::format_to(to,
                   "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>"
                   "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
                   kLeft, kRight, y.at(value), kLeft - 8, y.at(value) + 4, short_number(value));
  }
  for (const double value : x.ticks()) {
    fmt::format_to(to,
                   "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#eee\"/>"
                   "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
                   x.at(value), kTop, kBottom, kBottom + 18, short_number(value));
  }
  fmt::format_to(to,
                 "<text x=\"{}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n"
                 "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n"
                 "<text x=\"16\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {})\">{}</text>\n",
                 kLeft, escaped(chart.title), (kLeft + kRight) / 2, kBottom + 40, escaped(chart.x_name),
                 (kTop + kBottom) / 2, (kTop + kBottom) / 2, escaped(chart.y_name));
}

struct Stroke {
  const char *colour, *dashes;
};

Stroke stroke_of(const ChartLine& line, std::size_t nth) {
  if (line.bound) return {"#000000", "6 4"};
  return {kColours[nth % kColours.size()], nth < kColours.size() ? "none" : "2 2"};
}

void draw_line(std::string& out, const ChartLine& line, std::size_t nth, const Axis& x, const Axis& y) {
  const auto to = std::back_inserter(out);
  const auto [colour, dashes] = stroke_of(line, nth);
  fmt::format_to(to, "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\" points=\"",
                 colour, dashes);
  for (const auto& [px, py] : line.points) fmt::format_to(to, "{:.1f},{:.1f} ", x.at(px), y.at(py));
  fmt::format_to(to, "\"/>\n");
  for (const auto& [px, py] : line.points) {
    fmt::format_to(to,
                   "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"><title>{}: {} at {}</title></circle>\n",
                   x.at(px), y.at(py), line.points.size() > kPointsApart ? 1.5 : 3.0, colour, escaped(line.name),
                   fmt::format("{:.4g}", py), short_number(px));
  }
}

void draw_legend(std::string& out, const ChartLine& line, std::size_t nth) {
  const auto [colour, dashes] = stroke_of(line, nth);
  const double legend_y = kTop + 10 + 20 * static_cast<double>(nth);
  fmt::format_to(std::back_inserter(out),
                 "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"{3}\" stroke-width=\"2\" "
                 "stroke-dasharray=\"{4}\"/><text x=\"{5}\" y=\"{6}\">{7}</text>\n",
                 kRight + 16, kRight + 40, legend_y, colour, dashes, kRight + 46, legend_y + 4, escaped(line.name));
}

}  // namespace

std::string svg_of(const Chart& chart, int top) {
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" y=\"{}\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      top, kChartWidth, kChartHeight, kChartWidth, kChartHeight);
  const Axis x = x_axis(chart), y = y_axis(chart);
  draw_axes(out, chart, x, y);
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    draw_line(out, chart.lines[i], i, x, y);
    if (chart.lines.size() > 1) draw_legend(out, chart.lines[i], i);  // of a line alone the title says what it is
  }
  return out + "</svg>\n";
}

std::string svg_file(std::span<const Chart> charts) {
  const int height = kChartHeight * static_cast<int>(charts.size());
  std::string out =
      fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n",
                  kChartWidth, height);
  for (std::size_t i = 0; i < charts.size(); ++i) out += svg_of(charts[i], static_cast<int>(i) * kChartHeight);
  return out + "</svg>\n";
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace shale
