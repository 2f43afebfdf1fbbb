// What `lru`, `lfu`, `fixed` and `impress` share: every entry in one configuration, pushed down and out in an order.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "placement/placement.h"

namespace shale {

class OrderedPlanner final : public Planner {
 public:
  // True when `a` goes before `b`.
  using Order = bool (*)(const PlacedEntry& a, const PlacedEntry& b);

  // Entries are kept by (method, keep) where they have such a candidate, and dropped where not.
  OrderedPlanner(std::string_view name, std::uint32_t method, double keep, Order goes_first)
      : name_(name), method_(method), keep_(keep), goes_first_(goes_first) {}

  std::string_view name() const override { return name_; }
  std::uint32_t insert(const Problem& problem, const PlacedEntry& entry) const override;
  // Pushes the first in order from each tier to the next that could hold it, or out.
  Plan relieve(const Problem& problem) const override;
  // Packs the tiers again from the top, last in order first. What is dropped stays dropped.
  Plan promote(const Problem& problem) const override;

 private:
  // The entry's candidate on the first tier from `top` on that has `room[tier]` bytes for it; else dropped, if it may
  // be.
  std::optional<std::uint32_t> place(const Problem& problem, const PlacedEntry& entry, std::uint32_t top,
                                     const std::vector<std::uint64_t>& room) const;
  std::vector<std::size_t> in_order(const Problem& problem) const;

  std::string_view name_;
  std::uint32_t method_;
  double keep_;
  Order goes_first_;
};

// Least recently used first; of equals the less often used, then the larger id.
bool older(const PlacedEntry& a, const PlacedEntry& b);
// Least often used first; of equals the older.
bool rarer(const PlacedEntry& a, const PlacedEntry& b);

}  // namespace shale
