// Line charts as SVG text: nothing to load, nothing to run, readable in a browser or an editor of pictures.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shale {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending
  bool bound = false;                             // drawn dashed: what no other line can exceed
};

struct Chart {
  std::string title, x_name, y_name;
  bool log_x = false;  // every x is above 0 then
  std::vector<ChartLine> lines;
};

inline constexpr int kChartWidth = 860, kChartHeight = 420;

// An <svg> element. `top` is where it stands in an <svg> around it. Points tell their values when pointed at.
std::string svg_of(const Chart& chart, int top = 0);

// A whole file: the charts one below the other.
std::string svg_file(std::span<const Chart> charts);

// Text with & < > " replaced, for SVG and HTML.
std::string escaped(std::string_view text);

}  // namespace shale
