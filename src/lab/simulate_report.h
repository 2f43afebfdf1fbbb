// What `shale simulate` prints and draws of its runs.
#pragma once

#include <string>
#include <vector>

#include "report/output.h"
#include "report/svg_chart.h"
#include "sim/simulate.h"

namespace shale {

struct SimulatedRow {
  const Trace* trace = nullptr;
  SimulationOptions options;
  SimulationResult result;

  bool complete() const { return result.requests == trace->requests.size(); }
};

// "trace", "policy", "scheduler", "blocks", "requests", "blocks_requested", "blocks_reused", "hit_ratio", "seconds"; of
// an online run also waiting and first tokens, of a run that was stopped "interrupted", and the time line on demand.
Json to_json(const SimulatedRow& row, bool with_timeline);

// The same fields but the time line, comma-separated; quoted where RFC 4180 wants it.
std::string csv_header(bool online);
std::string csv_line(const SimulatedRow& row);

// A table for people: a block of lines for each trace and scheduler, a line for each size, a column for each policy.
std::string text_tables(const std::vector<SimulatedRow>& rows);

// Charts for each trace and scheduler: hit ratio against size, and over time where the rows have time lines; for each
// trace reuse distances.
std::vector<Chart> charts_of(const std::vector<SimulatedRow>& rows);

// One page with the charts and all numbers, self-contained.
std::string simulate_page(const std::vector<SimulatedRow>& rows, const std::vector<Chart>& charts);

}  // namespace shale
