// What `lru`, `lfu`, `fixed` and `impress` share: every cached prefix in one configuration, pushed down and out in an
// order.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "placement/placement.h"

namespace shale {

class OrderedPlanner final : public Planner {
 public:
  // A cached prefix's place in the order: the least goes first.
  using Order = StepOrder (*)(const PlacedPrefix& prefix);

  // Cached prefixes are kept by (method, keep) where they have such a candidate, and dropped where not.
  OrderedPlanner(std::string_view name, std::uint32_t method, double keep, Order order)
      : name_(name), method_(method), keep_(keep), order_(order) {}

  std::string_view name() const override { return name_; }
  std::uint32_t insert(const Terms& terms, const PlacedPrefix& prefix) const override;
  // Demotes to the next tier that could hold it, or out.
  std::optional<Demotion> demotion(const Terms& terms, const PlacedPrefix& prefix) const override;
  // Promotes the last in order first, over all that go before it: at rest, every cached prefix lies on the first tier
  // that has room beside those that come after it in order. What is dropped stays dropped.
  std::optional<Promotion> promotion(const Terms& terms, const PlacedPrefix& prefix, std::uint32_t tier,
                                     std::uint64_t bytes_below) const override;

 private:
  bool has_configuration(const Candidate& candidate) const;
  // The cached prefix's candidate on the first tier from `top` on that could hold it; else dropped, if it may be.
  std::optional<std::uint32_t> place(const Terms& terms, const PlacedPrefix& prefix, std::uint32_t top) const;

  std::string_view name_;
  std::uint32_t method_;
  double keep_;
  Order order_;
};

// Least recently used first; of equals the less often used, then the larger id.
StepOrder oldest_first(const PlacedPrefix& prefix);
// Least often used first; of equals the older, then the larger id.
StepOrder rarest_first(const PlacedPrefix& prefix);

}  // namespace shale
