#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "cli/commands/command_cache.h"
#include "core/units.h"
#include "runtime/stored_runs.h"

namespace shale {
namespace {

constexpr std::size_t kNameDigits = 12;

void print_listing(const StoredListing& listing) {
  std::size_t width = std::string_view("METHOD").size();
  for (const StoredVariant& variant : listing.variants) {
    width = std::max(width, variant.first().method.text().size());
  }
  fmt::print("{:<{}}  {:<20}  {:>7}  {:>6}  {:>7}  {:<{}}  {:>4}  {:<6}  {:>10}  {:>5}  {}\n", "RUN", kNameDigits,
             "MODEL", "AT", "TOKENS", "EXTENTS", "METHOD", width, "KEEP", "TIER", "SIZE", "USES", "FROM");
  for (const StoredVariant& variant : listing.variants) {
    const ExtentManifest& m = variant.first();
    fmt::print("{}  {:<20.20}  {:>7}  {:>6}  {:>7}  {:<{}}  {:>4}  {:<6}  {:>10}  {:>5.1f}  {}\n",
               variant.run().hex().substr(0, kNameDigits), variant.model, m.first_position, variant.tokens(),
               variant.extents.size(), m.method.text(), width, variant.keep(), variant.tier->tier->name(),
               format_bytes(variant.bytes()), variant.frequency, m.label);
  }
}

// What the tier's index would count: whole extents.
std::uint64_t bytes_of(const std::vector<ScannedExtent>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const ScannedExtent& extent) { return sum + extent.bytes; });
}

Status run_cache_ls(const StoredOptions& options) {
  SHALE_ASSIGN(const StoredListing listing, list_stored(options.tiers));
  if (options.output.json) {
    for (const StoredVariant& variant : listing.variants) print_json(to_json(variant));
    return {};
  }
  print_listing(listing);
  for (std::size_t t = 0; t < listing.tiers.size(); ++t) {
    const Tier& tier = *listing.tiers[t]->tier;
    const std::string room = tier.capacity_bytes() == kUnlimited ? "no bound" : format_bytes(tier.capacity_bytes());
    fmt::print("{}: {} of {} in use\n", tier.describe(), format_bytes(bytes_of(listing.scanned[t])), room);
  }
  if (const auto bad = std::ranges::count_if(listing.broken, std::not_fn(&BrokenExtent::of_another_version))) {
    fmt::print("{} extents or objects cannot be used; `shale cache verify` says why\n", bad);
  }
  print_other_versions(listing);
  return {};
}

}  // namespace

void add_cache_ls(Command parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "ls", "List what is stored: runs of tokens, where, how compressed, how large", run_cache_ls);
  add_stored_options(command, *options);
}

}  // namespace shale
