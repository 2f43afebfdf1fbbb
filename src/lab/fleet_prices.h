// What a simulated fleet costs, by a file of prices (docs/formats/prices.md).
#pragma once

#include <string>

#include "core/error.h"
#include "sim/fleet.h"

namespace shale {

// Prices in any one currency; GB are 10^9 bytes, a month has 730 hours.
struct FleetPrices {
  double engine_hour = 0;
  double memory_gb_hour = 0, disk_gb_hour = 0;  // of an engine's own tiers, as large as they are
  double store_gb_month = 0;                    // of what lies in the shared store at the end
  double network_gb = 0;                        // from and to it
  double transfers_million = 0;                 // likewise
};

// kInvalidArgument names the file and what in it is none: no JSON object, an unknown price, a value that is no number
// of at least 0.
Result<FleetPrices> read_prices(const std::string& path);

// The cost of a million requests like those of the run, by what the run took.
double cost_per_million(const FleetPrices& prices, const FleetOptions& options, const FleetResult& result);
// kInvalidArgument where a price is given for a tier that has no size.
Status check_prices(const FleetPrices& prices, const Hardware& hardware);

}  // namespace shale
