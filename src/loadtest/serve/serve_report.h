// What `shale bench serve` reports of its runs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loadtest/serve/serve_metrics.h"
#include "report/output.h"
#include "report/svg_chart.h"

namespace shale {

// docs/reference/json.md
Json to_json(const ServeRow& row);
// One for each request: when it was planned, what it asked, what came.
std::vector<Json> request_rows(const ServeRow& row);

// Tables for people: a line for each rate and planner, means over seeds; and every planner beside the first one.
std::string text_tables(std::span<const ServeRow> rows);
// Time to first token (p50, p90, p99) against rate, a line for each planner, means over seeds.
std::vector<Chart> charts_of(std::span<const ServeRow> rows);
// One page with the charts and the tables, self-contained. `about`: what was measured, in lines of text.
std::string serve_page(std::span<const ServeRow> rows, std::string_view about);

}  // namespace shale
