// A PlacementState's twin without its books: everything is looked at again at every step.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "placement/placement_state.h"

namespace shale::testing {

class NaivePlacement {
 public:
  NaivePlacement(const Planner& planner, const PlacementOptions& options, std::vector<TierRoom> tiers)
      : planner_(planner), options_(options) {
    problem_.alpha = options.alpha;
    problem_.move_s_per_byte = options.move_s_per_byte;
    problem_.tiers = std::move(tiers);
  }

  Problem& problem() { return problem_; }
  PlacedPrefix& prefix(std::size_t slot) { return problem_.prefixes[slot]; }
  bool live(std::size_t slot) const { return slot < live_.size() && live_[slot]; }

  void put(std::size_t slot, const PlacedPrefix& prefix) {
    if (slot >= problem_.prefixes.size()) {
      problem_.prefixes.resize(slot + 1);
      live_.resize(slot + 1);
      shares_.resize(slot + 1);
      held_.resize(slot + 1);
      frequencies_.resize(slot + 1);
    }
    problem_.prefixes[slot] = prefix;
    live_[slot] = true;
    shares_[slot] = held_[slot] = 0;
    frequencies_[slot] = prefix.frequency;
    weigh(slot);
  }
  void remove(std::size_t slot) { live_[slot] = false; }
  void pass(double seconds) {
    seen_s_ += seconds;
    for (std::size_t slot = 0; slot < live_.size(); ++slot) {
      frequencies_[slot] *= std::exp2(-seconds / options_.half_life_s);
      weigh(slot);
    }
  }
  void access(std::size_t slot, double now_s) {
    frequencies_[slot] += 1;
    prefix(slot).last_access_s = now_s;
    ++prefix(slot).accesses;
    expect_held(slot);
    weigh(slot);
  }
  void in_pool(std::size_t slot, double share, double now_s) {
    if (share == shares_[slot]) return;
    const bool evicted = share < shares_[slot];
    shares_[slot] = share;
    expect_held(slot);
    weigh(slot);
    if (!evicted) return;
    residence_.evicted(std::max(0.0, now_s - prefix(slot).last_access_s));
    const double now = residence_.characteristic_s();
    if (now < 1.25 * weighed_with_s_ && weighed_with_s_ < 1.25 * now) return;
    weighed_with_s_ = now;
    for (std::size_t other = 0; other < live_.size(); ++other) {
      if (!live_[other]) continue;
      expect_held(other);
      weigh(other);
    }
  }

  std::uint64_t used(std::uint32_t tier) const {
    std::uint64_t bytes = 0;
    for (std::size_t slot = 0; slot < live_.size(); ++slot) {
      if (live_[slot] && at(slot).tier == tier) bytes += at(slot).bytes;
    }
    return bytes;
  }
  const Candidate& at(std::size_t slot) const {
    return problem_.prefixes[slot].candidates[problem_.prefixes[slot].current];
  }

  bool over() const {
    for (std::uint32_t tier = 0; tier < problem_.tiers.size(); ++tier) {
      if (used(tier) > problem_.tiers[tier].capacity_bytes) return true;
    }
    return false;
  }

  void place(std::size_t slot) {
    prefix(slot).current = planner_.insert(problem_, prefix(slot));
    demote();
  }
  void demote() {
    double dropped = 0;
    for (std::uint32_t tier = 0; tier < problem_.tiers.size(); ++tier)
      demote_until_fits(tier, std::nullopt, ~0u, dropped);
  }

  // Whether any promotion of any cached prefix to any tier, in any form, would pay.
  bool anything_pays() const {
    for (std::size_t slot = 0; slot < live_.size(); ++slot) {
      if (!live_[slot] || problem_.prefixes[slot].pinned || shares_[slot] >= kHeldByPool) continue;
      for (std::uint32_t tier = 0; tier < problem_.tiers.size(); ++tier) {
        std::uint64_t below = ~std::uint64_t{0};
        while (const auto step = planner_.promotion(problem_, problem_.prefixes[slot], tier, below)) {
          if (pays(slot, *step)) return true;
          below = problem_.prefixes[slot].candidates[step->to].bytes;
        }
      }
    }
    return false;
  }

 private:
  void weigh(std::size_t slot) { prefix(slot).frequency = frequencies_[slot] * (1 - held_[slot]); }
  void expect_held(std::size_t slot) {
    const double window_s = options_.half_life_s / std::log(2) * (1 - std::exp2(-seen_s_ / options_.half_life_s));
    const double again = residence_.held_at_next_access(frequencies_[slot] / window_s);
    held_[slot] = shares_[slot] == 0 ? 0 : shares_[slot] * std::min(options_.pool_certainty, again);
  }

  bool pays(std::size_t slot, const Promotion& step) const {
    NaivePlacement trial = *this;
    trial.prefix(slot).current = step.to;
    double dropped = 0;
    for (std::uint32_t tier = 0; tier < problem_.tiers.size(); ++tier) {
      if (!trial.demote_until_fits(tier, step, slot, dropped)) return false;
    }
    return dropped < step.drop_below;
  }

  bool demote_until_fits(std::uint32_t tier, const std::optional<Promotion>& limit, std::size_t still,
                         double& dropped) {
    const std::uint64_t capacity = planner_.stores() ? problem_.tiers[tier].capacity_bytes : 0;
    while (used(tier) > capacity) {
      std::optional<Demotion> least;
      std::size_t of = 0;
      for (std::size_t slot = 0; slot < live_.size(); ++slot) {
        if (!live_[slot] || slot == still || prefix(slot).pinned || at(slot).tier != tier) continue;
        const auto demotion = planner_.demotion(problem_, prefix(slot));
        if (!demotion || (least && !(demotion->order < least->order))) continue;
        least = demotion;
        of = slot;
      }
      if (!least) return false;
      if (limit && (!(least->order < limit->displaces_before) || dropped + least->drop >= limit->drop_below)) {
        return false;
      }
      dropped += least->drop;
      prefix(of).current = least->to;
    }
    return true;
  }

  const Planner& planner_;
  PlacementOptions options_;
  Problem problem_;
  std::vector<bool> live_;
  std::vector<double> shares_, held_, frequencies_;
  PoolResidence residence_;
  double seen_s_ = 0, weighed_with_s_ = 0;
};

}  // namespace shale::testing
