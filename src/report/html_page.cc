#include "report/html_page.h"

#include <fmt/format.h>

namespace shale {
namespace {

constexpr char kStyle[] =
    "body{font-family:sans-serif;max-width:1000px;margin:2em auto}pre{overflow-x:auto}table{border-collapse:collapse}"
    "td,th{padding:.2em .6em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}";

}  // namespace

std::string html_page(std::string_view title, std::string_view heading, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n{}</body>\n</html>\n",
      escaped(title), kStyle, escaped(heading), body);
}

std::string inline_charts(std::span<const Chart> charts) {
  std::string out;
  for (const Chart& chart : charts) out += svg_of(chart);
  return out;
}

std::string preformatted(std::string_view text) { return "<pre>\n" + escaped(text) + "</pre>\n"; }

}  // namespace shale
