#include <fmt/format.h>

#include <algorithm>

#include "cli/command_cache.h"
#include "cli/stored_copies.h"
#include "core/units.h"

namespace shale {
namespace {

constexpr std::size_t kKeyDigits = 12;

// Objects of int8 pages never serve a pool of fp16.
std::string method_of(const StoredCopy& copy) {
  const bool int8 = copy.manifest().shape.element == PageElement::kInt8;
  return copy.object().method().text() + (int8 ? ", int8 pages" : "");
}

void print_table(const StoredListing& listing) {
  std::size_t width = std::string_view("METHOD").size();
  for (const StoredCopy& copy : listing.copies) width = std::max(width, method_of(copy).size());
  fmt::print("{:<{}}  {:<20}  {:>13}  {:<{}}  {:>4}  {:<6}  {:>10}  {}\n", "KEY", kKeyDigits, "MODEL", "TOKENS",
             "METHOD", width, "KEEP", "TIER", "SIZE", "FROM");
  for (const StoredCopy& copy : listing.copies) {
    const Manifest& m = copy.manifest();
    fmt::print("{}  {:<20.20}  {:>13}  {:<{}}  {:>4}  {:<6}  {:>10}  {}\n", m.key.hex().substr(0, kKeyDigits),
               m.fingerprint.model, fmt::format("{}..{}", m.first_position, m.first_position + m.tokens.size()),
               method_of(copy), width, copy.object().keep(), copy.tier->name(), format_bytes(copy.object().bytes()),
               copy.label);
  }
}

Status run(const StoredOptions& options) {
  SHALE_ASSIGN(const StoredListing listing, list_stored(options.tiers));
  if (options.output.json) {
    for (const StoredCopy& copy : listing.copies) print_json(to_json(copy));
    return {};
  }
  print_table(listing);
  for (const auto& tier : listing.tiers) {
    const std::string room = tier->capacity_bytes() == kUnlimited ? "no bound" : format_bytes(tier->capacity_bytes());
    fmt::print("{}: {} of {} in use\n", tier->describe(), format_bytes(tier->used_bytes()), room);
  }
  if (const std::size_t bad = listing.broken.size())
    fmt::print("{} objects cannot be used; `shale cache verify` says why\n", bad);
  return {};
}

}  // namespace

void add_cache_ls(CLI::App& parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "ls", "List stored entries: where, how compressed, how large", run);
  add_stored_options(*command, *options);
}

}  // namespace shale
