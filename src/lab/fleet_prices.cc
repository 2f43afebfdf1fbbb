#include "lab/fleet_prices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "core/text_file.h"
#include "report/output.h"
#include "tier/tier.h"

namespace shale {
namespace {

constexpr double kGb = 1e9, kHourS = 3600, kMonthHours = 730, kMillion = 1e6;

constexpr auto kPrices = std::to_array<std::pair<std::string_view, double FleetPrices::*>>({
    {"engine_hour", &FleetPrices::engine_hour},
    {"memory_gb_hour", &FleetPrices::memory_gb_hour},
    {"disk_gb_hour", &FleetPrices::disk_gb_hour},
    {"store_gb_month", &FleetPrices::store_gb_month},
    {"network_gb", &FleetPrices::network_gb},
    {"transfers_million", &FleetPrices::transfers_million},
});

double price_of(const FleetPrices& prices, std::string_view tier) {
  return tier == "memory" ? prices.memory_gb_hour : tier == "disk" ? prices.disk_gb_hour : 0;
}

}  // namespace

Result<FleetPrices> read_prices(const std::string& path) {
  SHALE_ASSIGN(const std::string text, read_text(path));
  const Json object = Json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return fail(ErrorCode::kInvalidArgument, "{}: prices must be a JSON object, as in {{\"engine_hour\": 2.5}}", path);
  }
  FleetPrices prices;
  for (const auto& [name, value] : object.items()) {
    const auto known = std::ranges::find(kPrices, name, &decltype(kPrices)::value_type::first);
    if (known == kPrices.end()) {
      std::vector<std::string_view> names;
      for (const auto& each : kPrices) names.push_back(each.first);
      return fail(ErrorCode::kInvalidArgument, "{}: '{}' is no price: there are {}", path, name,
                  fmt::join(names, ", "));
    }
    if (!value.is_number() || !(value.get<double>() >= 0) || !std::isfinite(value.get<double>())) {
      return fail(ErrorCode::kInvalidArgument, "{}: {} must be a number of at least 0", path, name);
    }
    prices.*known->second = value.get<double>();
  }
  return prices;
}

Status check_prices(const FleetPrices& prices, const Hardware& hardware) {
  for (const SimulatedTier& tier : hardware.tiers) {
    if (price_of(prices, tier.name) > 0 && tier.capacity_bytes == kUnlimited) {
      return fail(ErrorCode::kInvalidArgument, "{} has a price and no size: give --{}-size", tier.name, tier.name);
    }
  }
  return {};
}

double cost_per_million(const FleetPrices& prices, const FleetOptions& options, const FleetResult& result) {
  const double hours = result.duration_s / kHourS;
  double engine_hour = prices.engine_hour;
  for (const SimulatedTier& tier : options.engine.hardware.tiers) {
    if (tier.capacity_bytes == kUnlimited) continue;
    engine_hour += price_of(prices, tier.name) * static_cast<double>(tier.capacity_bytes) / kGb;
  }
  const double cost = options.engines * hours * engine_hour +
                      prices.store_gb_month * static_cast<double>(result.store_bytes) / kGb * hours / kMonthHours +
                      prices.network_gb * static_cast<double>(result.network_bytes) / kGb +
                      prices.transfers_million * static_cast<double>(result.transfers) / kMillion;
  return cost / static_cast<double>(std::max<std::uint64_t>(1, result.all.requests)) * kMillion;
}

}  // namespace shale
