// Self-contained pages: nothing to load, nothing to run.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "report/svg_chart.h"

namespace shale {

// `title` and `heading` are text, `body` is markup.
std::string html_page(std::string_view title, std::string_view heading, std::string_view body);

// Parts of a body: charts one below the other; text as it stands.
std::string inline_charts(std::span<const Chart> charts);
std::string preformatted(std::string_view text);

}  // namespace shale
