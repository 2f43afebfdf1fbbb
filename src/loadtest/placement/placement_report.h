// What `shale bench placement` reports of its cells.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "loadtest/placement/placement_summary.h"

namespace shale {

// Tables for people, and one self-contained page. `about`: what was measured. What rows rested before their requests,
// and what programs measured them, are columns where rows differ in it.
std::string placement_tables(std::span<const PlacementSummary> summaries, std::span<const LoadContext> contexts);
std::string placement_page(std::span<const PlacementSummary> summaries, std::span<const LoadContext> contexts,
                           std::string_view about);

}  // namespace shale
