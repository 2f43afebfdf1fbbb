// How a PlacementState decides: demotions until everything fits, promotions while they pay.
#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

#include "placement/placement_state.h"

namespace shale {
namespace {

constexpr PlacementSlot kNoSlot = ~PlacementSlot{0};
constexpr std::uint64_t kAnySize = ~std::uint64_t{0};

}  // namespace

bool PlacementState::DemotionStep::later_than(const DemotionStep& other) const {
  return std::tie(demotion.order, slot) > std::tie(other.demotion.order, other.slot);
}

bool PlacementState::PromotionStep::later_than(const PromotionStep& other) const {
  return std::tie(promotion.order, other.slot) < std::tie(other.promotion.order, slot);
}

bool PlacementState::FullCopy::later_than(const FullCopy& other) const {
  return std::tie(worth, slot) > std::tie(other.worth, other.slot);
}

std::optional<PlacementState::DemotionStep> PlacementState::demotion_of(PlacementSlot slot) const {
  const PlacedPrefix& prefix = tracked_[slot].prefix;
  if (!tracked_[slot].live || prefix.pinned || at(slot).tier == kDropped) return std::nullopt;
  const auto demotion = planner_.demotion(terms(), prefix);
  if (!demotion) return std::nullopt;
  return DemotionStep{*demotion, slot, versions_[slot]};
}

std::optional<PlacementState::PromotionStep> PlacementState::promotion_of(PlacementSlot slot, std::uint32_t tier,
                                                                          std::uint64_t bytes_below) const {
  const PlacedPrefix& prefix = tracked_[slot].prefix;
  const bool held = tracked_[slot].pool_share >= kHeldByPool;
  if (!tracked_[slot].live || prefix.pinned || (held && !tracked_[slot].pool_lossy)) return std::nullopt;
  if (at(slot).tier != kDropped && tiers_[at(slot).tier].silent) return std::nullopt;
  Terms of_prefix = terms();
  if (held) of_prefix.quality_above = at(slot).quality;
  const auto promotion = planner_.promotion(of_prefix, prefix, tier, bytes_below);
  if (!promotion) return std::nullopt;
  return PromotionStep{*promotion, slot, versions_[slot]};
}

PlacementState::FullCopy PlacementState::full_copy_of(PlacementSlot slot) const {
  const PlacedPrefix& prefix = tracked_[slot].prefix;
  return {prefix.frequency / static_cast<double>(prefix.full_copy_bytes), slot, versions_[slot]};
}

void PlacementState::offer(PlacementSlot slot) {
  offer_demotion(slot);
  offer_promotions(slot);
  if (copies_.made() && copy_bytes(slot) > 0) copies_.push(full_copy_of(slot));
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    demotions_[tier].tidy(versions_);
    ascents_[tier].steps.tidy(versions_);
  }
  copies_.tidy(versions_);
}

void PlacementState::offer_demotion(PlacementSlot slot) {
  const std::uint32_t tier = at(slot).tier;
  if (tier == kDropped || !demotions_[tier].made()) return;
  if (const auto step = demotion_of(slot)) demotions_[tier].push(*step);
}

void PlacementState::offer_promotions(PlacementSlot slot) {
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    StepHeap<PromotionStep>& steps = ascents_[tier].steps;
    if (!steps.made()) continue;
    if (const auto step = promotion_of(slot, tier, kAnySize)) steps.push(*step);
  }
}

// Makes the steps of what has moved for good since.
void PlacementState::offer_moved(std::size_t logged) {
  for (std::size_t i = logged; i < log_.size(); ++i) {
    const PlacementSlot slot = log_[i].slot;
    if (log_[i].version == versions_[slot]) renew(slot);
  }
}

void PlacementState::make_demotions(std::uint32_t tier) {
  if (demotions_[tier].made()) return;
  std::vector<DemotionStep> steps;
  for (PlacementSlot slot = 0; slot < tracked_.size(); ++slot) {
    if (!tracked_[slot].live || at(slot).tier != tier) continue;
    if (const auto step = demotion_of(slot)) steps.push_back(*step);
  }
  demotions_[tier].make(std::move(steps));
}

void PlacementState::make_promotions(std::uint32_t tier) {
  if (ascents_[tier].steps.made()) return;
  std::vector<PromotionStep> steps;
  for (PlacementSlot slot = 0; slot < tracked_.size(); ++slot) {
    if (const auto step = promotion_of(slot, tier, kAnySize)) steps.push_back(*step);
  }
  ascents_[tier] = {.steps = {}, .passed = {}, .round_began = changes_};
  ascents_[tier].steps.make(std::move(steps));
}

void PlacementState::make_copies() {
  if (copies_.made()) return;
  std::vector<FullCopy> copies;
  for (PlacementSlot slot = 0; slot < tracked_.size(); ++slot) {
    if (tracked_[slot].live && copy_bytes(slot) > 0) copies.push_back(full_copy_of(slot));
  }
  copies_.make(std::move(copies));
}

void PlacementState::unmake() {
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    demotions_[tier].unmake();
    ascents_[tier].steps.unmake();
  }
  copies_.unmake();
}

// A step was made when capacities may have been others: one that leads where nothing fits is made again. The step of
// the cached prefix whose promotion is tried is void only until that is taken back.
const PlacementState::DemotionStep* PlacementState::least_demotion(std::uint32_t tier) {
  StepHeap<DemotionStep>& heap = demotions_[tier];
  while (const DemotionStep* least = heap.peek()) {
    const DemotionStep step = *least;
    const bool is_void = step.version != versions_[step.slot];
    if (!is_void) {
      const Candidate& to = tracked_[step.slot].prefix.candidates[step.demotion.to];
      if (to.tier == tier || terms().could_fit(to)) return least;
    }
    heap.drop_first();
    if (step.version == tried_) taken_.push_back(step);
    if (!is_void) offer_demotion(step.slot);
  }
  return nullptr;
}

// Demotes until the tier fits or the limit forbids it.
bool PlacementState::demote_until_fits(std::uint32_t tier, const Limit& limit, double& dropped) {
  while (const std::uint64_t over = over_bytes(tier)) {
    make_demotions(tier);
    const DemotionStep* least = least_demotion(tier);
    if (!least || !(least->demotion.order < limit.displaces_before)) return false;
    const double at_least = std::max(least->demotion.drop, least->demotion.floor_per_byte * static_cast<double>(over));
    if (dropped + at_least >= limit.drop_below) return false;
    taken_.push_back(*least);
    demotions_[tier].drop_first();
    dropped += taken_.back().demotion.drop;
    shift(taken_.back().slot, taken_.back().demotion.to);
    offer_demotion(taken_.back().slot);
  }
  return true;
}

bool PlacementState::demote_until_fits(const Limit& limit) {
  double dropped = 0;
  bool fits = true;
  const bool any_drop = limit.drop_below == kAnyDrop && limit.displaces_before == kAfterAll;
  for (std::uint32_t tier = 0; tier < tiers_.size() && (fits || any_drop); ++tier) {
    fits = demote_until_fits(tier, limit, dropped) && fits;
  }
  return fits && (any_drop || dropped < limit.drop_below);
}

bool PlacementState::demote() {
  show({.kind = PlacementEvent::Kind::kDemote});
  return make_all_fit();
}

bool PlacementState::make_all_fit() {
  if (over()) {
    demote_until_fits({});
    taken_.clear();
    offer_moved(0);
  }
  return commit(kNoSlot);
}

std::uint32_t PlacementState::place(PlacementSlot slot) {
  show({.kind = PlacementEvent::Kind::kPlace, .slot = slot});
  assert(tracked_[slot].live);
  shift(slot, planner_.insert(terms(), tracked_[slot].prefix));
  offer_demotion(slot);
  demote_until_fits({});
  taken_.clear();
  offer_moved(0);
  commit(slot);
  return tracked_[slot].prefix.current;
}

bool PlacementState::settle(std::uint32_t promotions_max) {
  show({.kind = PlacementEvent::Kind::kSettle, .amount = promotions_max});
  if (make_all_fit()) return true;
  if (ascend_all(promotions_max)) return true;
  if (over()) return false;  // what is pinned passes its tier's capacity alone
  return std::ranges::any_of(ascents_, [&](Ascent& ascent) {
    return ascent.steps.first(versions_) || (!ascent.passed.empty() && ascent.round_began != changes_);
  });
}

bool PlacementState::promote(std::uint32_t promotions_max) {
  show({.kind = PlacementEvent::Kind::kPromote, .amount = promotions_max});
  return ascend_all(promotions_max);
}

bool PlacementState::ascend_all(std::uint32_t promotions_max) {
  if (over()) return false;
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) make_demotions(tier);  // not while one is being tried
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) ascend(tier, promotions_max);
  return commit(kNoSlot);
}

// Steps passed over come up again once all have been looked at and something has changed since that began.
void PlacementState::begin_round(std::uint32_t tier) {
  Ascent& ascent = ascents_[tier];
  if (ascent.steps.first(versions_) || ascent.round_began == changes_) return;
  ascent.round_began = changes_;
  std::vector<PlacementSlot> passed = std::exchange(ascent.passed, {});
  std::ranges::sort(passed);
  passed.erase(std::ranges::unique(passed).begin(), passed.end());
  std::vector<PromotionStep> steps;
  for (const PlacementSlot slot : passed) {
    if (const auto step = promotion_of(slot, tier, kAnySize)) steps.push_back(*step);
  }
  ascent.steps.make(std::move(steps));
}

void PlacementState::ascend(std::uint32_t tier, std::uint32_t looks) {
  make_promotions(tier);
  begin_round(tier);
  StepHeap<PromotionStep>& steps = ascents_[tier].steps;
  for (; looks > 0; --looks) {
    const PromotionStep* first = steps.first(versions_);
    if (!first) return;
    PromotionStep step = *first;
    steps.drop_first();
    if (options_.move_s_per_byte > 0) {  // which counts more, beside frequencies, than when the step was made
      const std::uint64_t bytes = tracked_[step.slot].prefix.candidates[step.promotion.to].bytes;
      const auto now = promotion_of(step.slot, tier, bytes + 1);
      if (!now) {
        ascents_[tier].passed.push_back(step.slot);
        continue;
      }
      step = *now;
    }
    look_at(step, tier);
  }
}

// Below how many bytes a configuration of the cached prefix may still pay for its place, when its best step did not.
// None gains more per byte than that step; all that lies beyond the free room costs what the least demotion gives up
// per byte.
std::uint64_t PlacementState::bytes_that_may_pay(const PromotionStep& step, std::uint32_t tier) {
  const Candidate& to = tracked_[step.slot].prefix.candidates[step.promotion.to];
  const std::uint64_t held = at(step.slot).tier == tier ? at(step.slot).bytes : 0;
  const DemotionStep* least = least_demotion(tier);
  if (!least || to.bytes <= held) return kAnySize;
  const double cost = least->demotion.floor_per_byte;
  const double gain = step.promotion.drop_below / static_cast<double>(to.bytes - held);
  if (cost <= gain) return kAnySize;
  const double bytes = static_cast<double>(free_bytes(tier)) * (cost / (cost - gain));
  return bytes < static_cast<double>(to.bytes) ? held + static_cast<std::uint64_t>(bytes) + 1 : kAnySize;
}

// Where the step would cost more than it may, a smaller configuration of the cached prefix is offered.
void PlacementState::look_at(const PromotionStep& step, std::uint32_t tier) {
  const PlacementSlot slot = step.slot;
  const Candidate& to = tracked_[slot].prefix.candidates[step.promotion.to];
  const std::size_t logged = log_.size();
  std::uint64_t bytes_below = to.bytes;
  if (terms().could_fit(to)) {
    tried_ = step.version;
    shift(slot, step.promotion.to);
    const bool made = demote_until_fits({step.promotion.drop_below, step.promotion.displaces_before});
    tried_ = 0;
    if (made) {
      taken_.clear();
      offer_moved(logged);
      return;
    }
    undo(logged);
    for (const DemotionStep& taken : taken_) demotions_[at(taken.slot).tier].push(taken);
    taken_.clear();
    bytes_below = std::min(bytes_below, bytes_that_may_pay(step, tier));
  }
  if (const auto smaller = promotion_of(slot, tier, bytes_below)) {
    ascents_[tier].steps.push(*smaller);
  } else {
    ascents_[tier].passed.push_back(slot);
  }
}

}  // namespace shale
