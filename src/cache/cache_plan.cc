#include <algorithm>
#include <utility>

#include "cache/cache_state.h"
#include "core/stopwatch.h"

namespace shale {

namespace {

constexpr std::size_t kRevisedARound = 32;  // entries whose candidates are looked at again though nothing was noted

}  // namespace

// Queues what carries out the placement's moves.
class Cache::State::Mover final : public PlacementBackend {
 public:
  explicit Mover(State& state) : state_(state) {}

  void start_move(PlacementSlot slot, const PlacedEntry&, const Candidate&, const Candidate& to) override {
    Entry& entry = *state_.by_slot[slot];
    const Configuration placed = state_.candidates->configuration(to);
    state_.planned[entry.key].placed = placed;
    entry.note_change();
    if (!entry.objects.empty()) state_.queue_move(entry, placed);
  }

  void drop_full_copy(PlacementSlot slot, const PlacedEntry&) override {
    Entry& entry = *state_.by_slot[slot];
    entry.note_change();
    if (entry.objects.size() > 1 && entry.find(Method::full(), state_.lowest())) {
      state_.jobs.push_back(make_cut_job(*state_.context, entry, {{Method::full(), state_.lowest(), 0}}));
    }
  }

 private:
  State& state_;
};

void Cache::State::start_placement() {
  std::vector<TierRoom> rooms;
  for (const auto& tier : tiers) rooms.push_back({tier->capacity_bytes()});
  held.resize(tiers.size());
  mover = std::make_unique<Mover>(*this);
  placement = std::make_unique<PlacementState>(
      *planner, PlacementOptions{.alpha = options.alpha, .half_life_s = options.frequency_half_life_s},
      std::move(rooms), *mover);
  if (options.on_placement) placement->record(options.on_placement);
}

// Whether every configuration can still be made of the entry: from a copy, or from one that a queued job will write.
bool Cache::State::has_source(const Entry& entry) const { return entry.full_copy() || entry.pins > 0; }

void Cache::State::touch(Entry& entry, double now_s) {
  entry.access(now_s);
  entry.note_change();
  const auto at = planned.find(entry.key);
  if (at != planned.end() && at->second.slot) placement->access(*at->second.slot, now_s);
}

// Tells the placement what the entry can become now.
void Cache::State::revise(Entry& entry, bool pinned) {
  const auto at = planned.find(entry.key);
  if (at == planned.end()) return;
  Planned& own = at->second;
  own.held.resize(tiers.size());
  for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
    held[tier] -= std::exchange(own.held[tier], 0);
  }
  for (const StoredObject& object : entry.objects) own.held[object.tier] += object.bytes();
  for (std::size_t tier = 0; tier < tiers.size(); ++tier) held[tier] += own.held[tier];

  const double now_s = clock.now_s();
  PlacedEntry offered = candidates->offer(entry, own.placed, has_source(entry), now_s);
  offered.pinned = pinned;
  if (own.slot) return placement->update(*own.slot, std::move(offered));
  own.slot = placement->add(std::move(offered), now_s);
  if (by_slot.size() <= *own.slot) by_slot.resize(*own.slot + 1);
  by_slot[*own.slot] = &entry;
}

// Changes of the index reach the placement before it decides.
void Cache::State::catch_up() {
  std::vector<EntryKey> changed = index.take_changes();
  std::ranges::sort(changed);  // the same changes are the same plan
  for (const EntryKey& key : changed) {
    if (Entry* entry = index.find(key)) revise(*entry, entry->pins > 0);
  }
  note_capacities();
}

// Speeds and qualities that candidates are made of change without a note; a few entries a round follow them.
void Cache::State::revise_some() {
  for (std::size_t i = 0; i < std::min(kRevisedARound, by_slot.size()); ++i) {
    revised = revised + 1 < by_slot.size() ? revised + 1 : 0;
    if (Entry* entry = by_slot[revised]) revise(*entry, entry->pins > 0);
  }
}

// Manifests, observations and padding take room too, which candidates do not count. Known while nothing is being
// written.
void Cache::State::note_capacities() {
  for (std::uint32_t i = 0; i < tiers.size() && jobs.empty(); ++i) {
    std::uint64_t capacity = tiers[i]->capacity_bytes();
    const std::uint64_t used = tiers[i]->used_bytes();
    if (capacity != kUnlimited && used > held[i]) capacity -= std::min(capacity, used - held[i]);
    placement->set_capacity(i, capacity);
  }
}

Problem Cache::problem() const {
  state_->catch_up();
  return state_->placement->problem(state_->clock.now_s());
}

void Cache::State::queue_move(Entry& entry, const Configuration& to) {
  std::vector<CopyCut> cuts;
  bool there = false;  // or what it can be cut from
  for (const StoredObject& object : entry.objects) {
    // The base stays beside what lies above it; what is compressed below takes its place.
    const bool base = object.method().is_full() && object.tier == lowest() && to.tier < lowest();
    const std::optional<Bits> serves = object.serves(to.method, to.keep);
    const bool stays = object.tier == to.tier && (serves || object.method() == to.method);
    if (to.tier == kDropped || (!base && !stays)) cuts.push_back({object.method(), object.tier, 0});
    if (!stays || !serves) continue;
    there = true;
    cuts.push_back({object.method(), object.tier, object.manifest->strata_for(to.keep), *serves});
  }
  if (to.tier == kDropped || there) {
    jobs.push_back(make_cut_job(*context, entry, std::move(cuts)));
  } else {
    jobs.push_back(make_copy_job(*context, entry, {to.method, to.keep, to.tier}, std::move(cuts)));
  }
}

void Cache::plan() {
  State& s = *state_;
  const Stopwatch planning(s.clock, s.stats.planning_seconds);
  s.planned_at_s = s.clock.now_s();
  // What other processes measured meanwhile; without it the plan is merely older.
  if (s.catalogue) static_cast<void>(s.catalogue->refresh());
  s.catch_up();
  s.revise_some();
  s.look_at_pool();
  s.plan_due = s.placement->settle();
}

void Cache::State::forget_if_gone(Entry& entry) {
  if (entry.pins > 0 || !entry.objects.empty()) return;
  if (const auto at = planned.find(entry.key); at != planned.end()) {
    const Planned& own = at->second;
    for (std::size_t tier = 0; tier < own.held.size(); ++tier) held[tier] -= own.held[tier];
    if (own.slot) {
      placement->remove(*own.slot);
      by_slot[*own.slot] = nullptr;
    }
    planned.erase(at);
  }
  index.remove(entry.key);
}

Status Cache::remove(const EntryKey& key) {
  State& s = *state_;
  Entry* entry = s.index.find(key);
  if (!entry) return fail(ErrorCode::kNotFound, "no entry {} in this cache", key.hex());
  if (entry->pins > 0) return fail(ErrorCode::kBusy, "entry {} is being read or written: try again", key.hex());
  entry->note_change();
  while (!entry->objects.empty()) {
    const StoredObject object = entry->objects.back();
    SHALE_TRY(remove_object(*s.tiers[object.tier], object.name()));
    entry->objects.pop_back();
  }
  s.forget_if_gone(*entry);
  return {};
}

Status Cache::check_integrity() const {
  const State& s = *state_;
  SHALE_TRY(s.index.check_integrity());
  SHALE_TRY(s.tree->check_integrity());
  SHALE_TRY(s.pool.check_integrity());
  for (const Entry* entry : std::as_const(s.index).all()) {
    for (const StoredObject& object : entry->objects) {
      if (!s.tiers[object.tier]->contains({object.name(), BlobId::kManifest})) {
        return fail(ErrorCode::kInternal, "entry {} lists an object that {} does not have", entry->key.hex(),
                    s.tiers[object.tier]->name());
      }
    }
  }
  return {};
}

}  // namespace shale
