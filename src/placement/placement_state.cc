#include "placement/placement_state.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>
#include <tuple>
#include <utility>

namespace shale {
namespace {

constexpr std::uint64_t kUnbounded = ~std::uint64_t{0};
constexpr double kResidenceNews = 1.25;  // times as long, or short
constexpr double kHalvingsMax = 256;  // that the scale of frequencies may be away from now: far within a double's range

}  // namespace

PlacementState::PlacementState(const Planner& planner, const PlacementOptions& options, std::vector<TierRoom> tiers,
                               PlacementBackend& backend)
    : planner_(planner),
      options_(options),
      tiers_(std::move(tiers)),
      backend_(backend),
      used_(tiers_.size()),
      demotions_(tiers_.size()),
      ascents_(tiers_.size()) {}

const Candidate& PlacementState::at(PlacementSlot slot) const {
  const PlacedPrefix& prefix = tracked_[slot].prefix;
  return prefix.candidates[prefix.current];
}

std::uint64_t PlacementState::over_bytes(std::uint32_t tier) const {
  if (tiers_[tier].silent) return 0;
  const std::uint64_t capacity = planner_.stores() ? tiers_[tier].capacity_bytes : 0;
  return used_[tier] > capacity ? used_[tier] - capacity : 0;
}

bool PlacementState::bounded(std::uint32_t tier) const { return tiers_[tier].capacity_bytes != kUnbounded; }

bool PlacementState::over() const {
  for (std::uint32_t tier = 0; tier < tiers_.size(); ++tier) {
    if (over_bytes(tier) > 0) return true;
  }
  return false;
}

std::uint64_t PlacementState::free_bytes(std::uint32_t tier) const {
  return tiers_[tier].capacity_bytes - std::min(used_[tier], tiers_[tier].capacity_bytes);
}

PlacedPrefix PlacementState::that_fit(PlacedPrefix prefix) const {
  std::vector<Candidate>& all = prefix.candidates;
  std::rotate(all.begin(), all.begin() + prefix.current, all.begin() + prefix.current + 1);
  prefix.current = 0;
  const Candidate has = all.front();
  const auto too_large = [&](const Candidate& each) {
    if (each.tier == kDropped) return false;
    if (!terms().could_fit(each)) return true;
    return each.bytes > free_bytes(each.tier) + (each.tier == has.tier ? has.bytes : 0);
  };
  all.erase(std::remove_if(all.begin() + 1, all.end(), too_large), all.end());
  prefix.pinned = false;
  return prefix;
}

// What one access now counts as at epoch_s_.
double PlacementState::scale(double now_s) const { return std::exp2((now_s - epoch_s_) / options_.half_life_s); }

// The clock, which does not go back. Moves the epoch when it is too far away for frequencies to be numbers.
double PlacementState::advance(double now_s) {
  if (!std::exchange(started_, true)) began_s_ = epoch_s_ = now_s_ = now_s;
  now_s_ = std::max(now_s_, now_s);
  if ((now_s_ - epoch_s_) / options_.half_life_s > kHalvingsMax) {
    const double by = 1 / scale(now_s_);
    epoch_s_ = now_s_;
    for (PlacementSlot slot = 0; slot < tracked_.size(); ++slot) {
      tracked_[slot].weight *= by;
      weigh(slot);
    }
    unmake();
  }
  return now_s_;
}

// As far back as accesses count: a count that decays is their rate times this.
double PlacementState::accesses_per_s(PlacementSlot slot) const {
  const double seen_s = now_s_ - began_s_, half_life_s = options_.half_life_s;
  const double window_s =
      std::isinf(half_life_s) ? seen_s : half_life_s / std::numbers::ln2 * (1 - std::exp2(-seen_s / half_life_s));
  const double weight = tracked_[slot].weight;
  return weight > 0 ? weight / scale(now_s_) / window_s : 0;
}

double PlacementState::frequency(PlacementSlot slot, double now_s) const {
  return tracked_[slot].weight / scale(std::max(now_s, now_s_));
}

void PlacementState::expect_held(PlacementSlot slot) {
  Tracked& tracked = tracked_[slot];
  tracked.held = tracked.pool_share == 0
                     ? 0
                     : tracked.pool_share *
                           std::min(options_.pool_certainty, residence_.held_at_next_access(accesses_per_s(slot)));
}

void PlacementState::weigh(PlacementSlot slot) {
  Tracked& tracked = tracked_[slot];
  tracked.prefix.frequency = tracked.weight * (1 - tracked.held);
}

// Bytes of the cached prefix's full copy, while the lowest tier keeps one beside what is placed.
std::uint64_t PlacementState::copy_bytes(PlacementSlot slot) const {
  if (tiers_.empty() || !bounded(lowest())) return 0;
  return at(slot).tier < lowest() ? tracked_[slot].prefix.full_copy_bytes : 0;
}

void PlacementState::count(PlacementSlot slot) {
  if (at(slot).tier != kDropped) used_[at(slot).tier] += at(slot).bytes;
  copied_ += copy_bytes(slot);
}

void PlacementState::uncount(PlacementSlot slot) {
  if (at(slot).tier != kDropped) used_[at(slot).tier] -= at(slot).bytes;
  copied_ -= copy_bytes(slot);
}

// Makes all earlier steps of the cached prefix void and new ones.
void PlacementState::renew(PlacementSlot slot) {
  ++changes_;
  versions_[slot] = ++version_;
  offer(slot);
}

PlacementSlot PlacementState::add(PlacedPrefix prefix, double now_s) {
  show({.kind = PlacementEvent::Kind::kAdd, .value = now_s, .prefix = prefix});
  assert(prefix.current < prefix.candidates.size());
  const double scale_now = scale(advance(now_s));
  began_s_ = std::min(began_s_, prefix.last_access_s);
  PlacementSlot slot = static_cast<PlacementSlot>(tracked_.size());
  if (free_.empty()) {
    tracked_.emplace_back();
    versions_.push_back(0);
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  const double weight = prefix.frequency * scale_now;
  tracked_[slot] = {.prefix = std::move(prefix), .weight = weight, .live = true};
  ++live_;
  weigh(slot);
  count(slot);
  renew(slot);
  return slot;
}

void PlacementState::update(PlacementSlot slot, PlacedPrefix prefix) {
  show({.kind = PlacementEvent::Kind::kUpdate, .slot = slot, .prefix = prefix});
  assert(tracked_[slot].live && prefix.current < prefix.candidates.size());
  PlacedPrefix& own = tracked_[slot].prefix;
  uncount(slot);
  own.candidates = std::move(prefix.candidates);
  own.current = prefix.current;
  own.pinned = prefix.pinned;
  own.full_copy_bytes = prefix.full_copy_bytes;
  own.importance = prefix.importance;
  count(slot);
  renew(slot);
}

void PlacementState::remove(PlacementSlot slot) {
  show({.kind = PlacementEvent::Kind::kRemove, .slot = slot});
  assert(tracked_[slot].live);
  uncount(slot);
  tracked_[slot] = {};
  versions_[slot] = 0;
  ++changes_;
  --live_;
  free_.push_back(slot);
}

void PlacementState::access(PlacementSlot slot, double now_s, double share) {
  show({.kind = PlacementEvent::Kind::kAccess, .slot = slot, .value = now_s, .share = share});
  Tracked& tracked = tracked_[slot];
  tracked.weight += share * scale(advance(now_s));
  ++tracked.prefix.accesses;
  tracked.prefix.last_access_s = now_s_;
  expect_held(slot);
  weigh(slot);
  renew(slot);
}

void PlacementState::in_pool(PlacementSlot slot, double share, double now_s, bool evicted, bool lossy) {
  show({.kind = PlacementEvent::Kind::kInPool,
        .slot = slot,
        .value = now_s,
        .share = share,
        .lossy = lossy,
        .amount = evicted});
  advance(now_s);
  Tracked& tracked = tracked_[slot];
  if (tracked.pool_share == share && tracked.pool_lossy == lossy) return;
  evicted = evicted && share < tracked.pool_share;
  tracked.pool_share = share;
  tracked.pool_lossy = lossy;
  expect_held(slot);
  weigh(slot);
  renew(slot);
  if (!evicted) return;
  residence_.evicted(std::max(0.0, now_s_ - tracked.prefix.last_access_s));
  const double now = residence_.characteristic_s();
  if (now < kResidenceNews * weighed_with_s_ && weighed_with_s_ < kResidenceNews * now) return;
  weighed_with_s_ = now;
  for (PlacementSlot other = 0; other < tracked_.size(); ++other) {
    if (!tracked_[other].live || tracked_[other].pool_share == 0) continue;
    expect_held(other);
    weigh(other);
    renew(other);
  }
}

void PlacementState::pin(PlacementSlot slot, bool pinned) {
  show({.kind = PlacementEvent::Kind::kPin, .slot = slot, .value = pinned ? 1.0 : 0.0});
  if (std::exchange(tracked_[slot].prefix.pinned, pinned) != pinned) renew(slot);
}

void PlacementState::set_capacity(std::uint32_t tier, std::uint64_t bytes) {
  show({.kind = PlacementEvent::Kind::kCapacity, .slot = tier, .amount = bytes});
  std::uint64_t& capacity = tiers_[tier].capacity_bytes;
  const std::uint64_t change = bytes > capacity ? bytes - capacity : capacity - bytes;
  if (change == 0) return;
  if (change > capacity / 16) unmake();
  if (tier == lowest() && (bytes == kUnbounded || capacity == kUnbounded)) {
    copied_ = 0;
    capacity = bytes;
    for (PlacementSlot slot = 0; slot < tracked_.size(); ++slot) {
      if (tracked_[slot].live) copied_ += copy_bytes(slot);
    }
  }
  capacity = bytes;
  ++changes_;
}

bool PlacementState::set_silent(std::uint32_t tier, bool silent) {
  if (tiers_[tier].silent == silent) return false;
  show({.kind = PlacementEvent::Kind::kSilent, .slot = tier, .value = silent ? 1.0 : 0.0});
  tiers_[tier].silent = silent;
  unmake();
  ++changes_;
  return true;
}

// Moves the cached prefix, logged. Its steps become void; the caller makes those that it needs.
void PlacementState::shift(PlacementSlot slot, std::uint32_t to) {
  log_.push_back({slot, tracked_[slot].prefix.current, versions_[slot], ++version_});
  uncount(slot);
  tracked_[slot].prefix.current = to;
  count(slot);
  versions_[slot] = version_;
}

// Takes back the moves since, and with them the void of what was offered before.
void PlacementState::undo(std::size_t logged) {
  for (; log_.size() > logged; log_.pop_back()) {
    const Logged& last = log_.back();
    uncount(last.slot);
    tracked_[last.slot].prefix.current = last.from;
    count(last.slot);
    versions_[last.slot] = last.version_before;
  }
}

void PlacementState::drop_copy(PlacementSlot slot) {
  copied_ -= copy_bytes(slot);
  tracked_[slot].prefix.full_copy_bytes = 0;
  copies_dropped_.push_back(slot);
}

// Full copies that no longer fit beside what is placed on a bounded lowest tier go, the least used per byte first.
void PlacementState::drop_copies() {
  if (copied_ > 0 && copied_ > free_bytes(lowest())) {
    make_copies();
    while (copied_ > free_bytes(lowest())) {
      const FullCopy* least = copies_.first(versions_);
      assert(least);
      drop_copy(least->slot);
      copies_.drop_first();
    }
  }
  for (const PlacementSlot slot : std::exchange(copies_dropped_, {})) {
    backend_.drop_full_copy(slot, tracked_[slot].prefix);
  }
}

// Tells the backend of the call's net moves; of `silent`'s, if any, nothing. What is compressed on a bounded lowest
// tier is compressed to save room there, and its full copy goes.
bool PlacementState::commit(PlacementSlot silent) {
  struct Net {
    PlacementSlot slot;
    Candidate from, to;
  };
  std::vector<Net> moves;
  const std::vector<Logged> log = std::exchange(log_, {});
  for (const Logged& logged : log) {
    Tracked& tracked = tracked_[logged.slot];
    if (std::exchange(tracked.noted, true)) continue;
    const Candidate& to = at(logged.slot);
    const bool full = to.method == kFullMethod && to.keep == 1;
    if (tracked.prefix.full_copy_bytes > 0 && to.tier == lowest() && !full && bounded(lowest())) drop_copy(logged.slot);
    if (logged.from == tracked.prefix.current || logged.slot == silent) continue;
    moves.push_back({logged.slot, tracked.prefix.candidates[logged.from], to});
  }
  for (const Logged& logged : log) tracked_[logged.slot].noted = false;
  std::ranges::sort(moves, {}, [](const Net& move) {
    const bool shrinks_in_place = move.from.tier == move.to.tier && move.to.bytes <= move.from.bytes;
    return std::tuple(~move.to.tier, !shrinks_in_place, move.slot);
  });
  drop_copies();
  for (const Net& move : moves) backend_.start_move(move.slot, tracked_[move.slot].prefix, move.from, move.to);
  return !moves.empty();
}

void PlacementState::apply(const PlacementEvent& event) {
  using Kind = PlacementEvent::Kind;
  switch (event.kind) {
    case Kind::kAdd:
      add(event.prefix, event.value);
      return;
    case Kind::kUpdate:
      return update(event.slot, event.prefix);
    case Kind::kRemove:
      return remove(event.slot);
    case Kind::kAccess:
      return access(event.slot, event.value, event.share);
    case Kind::kInPool:
      return in_pool(event.slot, event.share, event.value, event.amount > 0, event.lossy);
    case Kind::kPin:
      return pin(event.slot, event.value > 0);
    case Kind::kCapacity:
      return set_capacity(event.slot, event.amount);
    case Kind::kSilent:
      set_silent(event.slot, event.value > 0);
      return;
    case Kind::kPlace:
      place(event.slot);
      return;
    case Kind::kSettle:
      settle(static_cast<std::uint32_t>(event.amount));
      return;
    case Kind::kDemote:
      demote();
      return;
    case Kind::kPromote:
      promote(static_cast<std::uint32_t>(event.amount));
      return;
  }
}

Status PlacementState::check_integrity() const {
  std::vector<std::uint64_t> used(tiers_.size());
  std::vector<bool> offered(tracked_.size());
  std::uint64_t copied = 0;
  for (const StepHeap<DemotionStep>& heap : demotions_) {
    for (const DemotionStep& step : heap.all()) {
      if (step.version == versions_[step.slot]) offered[step.slot] = true;
    }
  }
  for (PlacementSlot slot = 0; slot < tracked_.size(); ++slot) {
    if (!tracked_[slot].live) continue;
    copied += copy_bytes(slot);
    const std::uint32_t tier = at(slot).tier;
    if (tier == kDropped) continue;
    used[tier] += at(slot).bytes;
    if (demotions_[tier].made() && demotion_of(slot).has_value() != offered[slot]) {
      return fail(ErrorCode::kInternal, "cached prefix in slot {}: its demotion is {}", slot,
                  offered[slot] ? "void" : "missing");
    }
  }
  if (used != used_ || copied != copied_) return fail(ErrorCode::kInternal, "bytes in use do not add up");
  return {};
}

Problem PlacementState::problem(double now_s) const {
  const double by = started_ ? 1 / scale(std::max(now_s, now_s_)) : 1;
  Problem problem{
      .alpha = options_.alpha, .tiers = tiers_, .prefixes = {}, .move_s_per_byte = options_.move_s_per_byte};
  for (const Tracked& tracked : tracked_) {
    if (!tracked.live) continue;
    problem.prefixes.push_back(tracked.prefix);
    problem.prefixes.back().frequency *= by;
  }
  return problem;
}

}  // namespace shale
