#include <algorithm>
#include <span>
#include <vector>

#include "placement/ellipsoid.h"
#include "placement/hull.h"
#include "placement/placement.h"

namespace shale {
namespace {

// The Lagrangian dual of a placement problem: prices per byte and tier in place of capacities.
class Dual {
 public:
  explicit Dual(const Problem& problem);

  std::size_t prices() const { return capacity_.size(); }
  // Where everything may be dropped, no higher price is the best one: the tier would cost more than it can be worth.
  double price_max(std::size_t i) const { return price_max_[i]; }
  double range() const { return range_; }
  double value(std::span<const double> price, std::span<double> subgradient) const;

 private:
  struct Choice {
    double utility = 0;
    double bytes = 0;
    std::size_t tier = 0;  // index of its price, kFree when it has none
  };
  static constexpr std::size_t kFree = ~std::size_t{0};

  void add_choices(const Problem& problem, const PlacedPrefix& prefix, const std::vector<std::size_t>& price_of_tier);

  std::vector<double> capacity_;  // of the bounded tiers
  std::vector<double> price_max_;
  double range_ = 0;               // from everything at its worst to everything at its best
  std::vector<Choice> choices_;    // of all cached prefixes, one after another
  std::vector<std::size_t> ends_;  // where each cached prefix's choices end
  std::vector<Point> points_;      // scratch
};

// Only hull vertices can be the best choice at some price; from the best one on, for prices are not negative.
void Dual::add_choices(const Problem& problem, const PlacedPrefix& prefix,
                       const std::vector<std::size_t>& price_of_tier) {
  const auto worth = [&](const Candidate& candidate) { return utility(problem.alpha, prefix.frequency, candidate); };
  const auto add = [&](double value, std::uint64_t bytes, std::size_t price) {
    choices_.push_back({value, static_cast<double>(bytes), price});
  };
  if (prefix.pinned) {
    const Candidate& current = prefix.candidates[prefix.current];
    add(worth(current), current.bytes, current.tier == kDropped ? kFree : price_of_tier[current.tier]);
    return;
  }
  const auto dropped = dropped_candidate(prefix);
  if (dropped) add(worth(prefix.candidates[*dropped]), 0, kFree);
  for (std::uint32_t tier = 0; tier < problem.tiers.size(); ++tier) {
    points_.clear();
    for (std::uint32_t c = 0; c < prefix.candidates.size(); ++c) {
      const Candidate& candidate = prefix.candidates[c];
      if (candidate.tier != tier || (dropped && !Terms(problem).could_fit(candidate))) continue;
      points_.push_back({candidate.bytes, worth(candidate), c});
    }
    if (points_.empty()) continue;
    Point at = *std::ranges::max_element(points_, {}, &Point::utility);
    add(at.utility, at.bytes, price_of_tier[tier]);
    while (const Point* next = next_vertex(points_, at)) {
      at = *next;
      add(at.utility, at.bytes, price_of_tier[tier]);
    }
  }
}

Dual::Dual(const Problem& problem) {
  std::vector<std::size_t> price_of_tier;
  for (const TierRoom& tier : problem.tiers) {
    const bool bounded = tier.capacity_bytes != ~std::uint64_t{0};
    price_of_tier.push_back(bounded ? capacity_.size() : kFree);
    if (bounded) capacity_.push_back(static_cast<double>(tier.capacity_bytes));
  }
  price_max_.assign(capacity_.size(), 0);
  for (const PlacedPrefix& prefix : problem.prefixes) {
    const std::size_t begin = choices_.size();
    add_choices(problem, prefix, price_of_tier);
    ends_.push_back(choices_.size());
    const std::span<const Choice> own(choices_.begin() + static_cast<std::ptrdiff_t>(begin), choices_.end());
    const auto [worst, best] = std::ranges::minmax(own, {}, &Choice::utility);
    for (const Choice& choice : own) {
      if (choice.tier == kFree || choice.bytes == 0) continue;
      double& price = price_max_[choice.tier];
      price = std::max(price, (choice.utility - worst.utility) / choice.bytes);
    }
    range_ += best.utility - worst.utility;
  }
  for (std::size_t i = 0; i < capacity_.size(); ++i) {
    if (capacity_[i] > 0) price_max_[i] = std::min(price_max_[i], range_ / capacity_[i]);
  }
}

double Dual::value(std::span<const double> price, std::span<double> subgradient) const {
  double sum = 0;
  for (std::size_t i = 0; i < prices(); ++i) {
    sum += price[i] * capacity_[i];
    subgradient[i] = capacity_[i];
  }
  std::size_t begin = 0;
  for (const std::size_t end : ends_) {
    const Choice* best = nullptr;
    double best_net = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const Choice& choice = choices_[i];
      const double net = choice.tier == kFree ? choice.utility : choice.utility - price[choice.tier] * choice.bytes;
      if (best && net <= best_net) continue;
      best = &choice;
      best_net = net;
    }
    sum += best_net;
    if (best->tier != kFree) subgradient[best->tier] -= best->bytes;
    begin = end;
  }
  return sum;
}

}  // namespace

double utility_bound(const Problem& problem) {
  const Dual dual(problem);
  std::vector<double> price(dual.prices());
  std::vector<double> slope(dual.prices());
  const EllipsoidOptions options{.gap = 1e-6 * dual.range()};
  return minimise_over_unit_box(dual.prices(), options, [&](std::span<const double> at, std::span<double> subgradient) {
    for (std::size_t i = 0; i < price.size(); ++i) price[i] = at[i] * dual.price_max(i);
    const double value = dual.value(price, slope);
    for (std::size_t i = 0; i < price.size(); ++i) subgradient[i] = slope[i] * dual.price_max(i);
    return value;
  });
}

}  // namespace shale
