#include <algorithm>
#include <thread>
#include <utility>

#include "cache/cache_state.h"
#include "core/stopwatch.h"

namespace shale {

// Whether every configuration can still be made of the entry: from a copy, or from one that a queued job will write.
bool Cache::State::has_source(const Entry& entry) const { return entry.full_copy() || entry.pins > 0; }

std::vector<const Entry*> Cache::State::planned_entries() const {
  std::vector<const Entry*> entries = index.all();
  std::erase_if(entries, [&](const Entry* entry) { return !planned.contains(entry->key); });
  std::ranges::sort(entries, {}, &Entry::key);  // the same problem is the same plan
  return entries;
}

Problem Cache::State::problem() const {
  Problem problem{.alpha = options.alpha, .tiers = {}, .entries = {}};
  for (const auto& tier : tiers) problem.tiers.push_back({tier->capacity_bytes()});
  // Manifests, observations and padding take room too, which candidates do not count. Known while nothing is being
  // written.
  std::vector<std::uint64_t> in_chunks(tiers.size());
  for (const Entry* entry : index.all()) {
    for (const StoredObject& object : entry->objects) in_chunks[object.tier] += object.bytes();
  }
  for (std::size_t i = 0; i < tiers.size() && jobs.empty(); ++i) {
    const std::uint64_t used = tiers[i]->used_bytes();
    std::uint64_t& capacity = problem.tiers[i].capacity_bytes;
    if (capacity != kUnlimited && used > in_chunks[i]) capacity -= std::min(capacity, used - in_chunks[i]);
  }
  const double now_s = clock.now_s();
  for (const Entry* entry : planned_entries()) {
    problem.entries.push_back(candidates->offer(*entry, planned.at(entry->key), has_source(*entry), now_s));
  }
  return problem;
}

Problem Cache::problem() const { return state_->problem(); }

void Cache::State::queue_move(Entry& entry, const Configuration& to) {
  std::vector<CopyCut> cuts;
  bool there = false;  // or what it can be cut from
  for (const StoredObject& object : entry.objects) {
    const bool base = object.method().is_full() && object.tier == lowest();
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

void Cache::State::apply(const Problem& problem, const Plan& plan, std::span<const Entry* const> entries) {
  trim_bases(problem, placement_after(problem, plan), entries);
  for (const Move& move : plan.moves) {
    Entry& entry = *index.find(entries[move.entry]->key);
    const Configuration to = candidates->configuration(problem.entries[move.entry].candidates[move.to]);
    planned[entry.key] = to;
    if (!entry.objects.empty()) queue_move(entry, to);
  }
}

// Bases that no longer fit beside what is placed on a bounded lowest tier go, least useful first.
void Cache::State::trim_bases(const Problem& problem, std::span<const std::uint32_t> placement,
                              std::span<const Entry* const> entries) {
  if (tiers[lowest()]->capacity_bytes() == kUnlimited) return;
  const std::vector<std::size_t> fitting = full_copies(problem, placement);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Candidate& placed = problem.entries[i].candidates[placement[i]];
    if (placed.tier == kDropped || placed.tier == lowest() || std::ranges::binary_search(fitting, i)) continue;
    Entry& entry = *index.find(entries[i]->key);
    if (entry.objects.size() > 1 && entry.find(Method::full(), lowest())) {
      jobs.push_back(make_cut_job(*context, entry, {{Method::full(), lowest(), 0}}));
    }
  }
}

void Cache::plan() {
  State& s = *state_;
  const Stopwatch planning(s.clock, s.stats.planning_seconds);
  s.plan_due = false;
  s.planned_at_s = s.clock.now_s();
  // What other processes measured meanwhile; without it the plan is merely older.
  if (s.catalogue) static_cast<void>(s.catalogue->refresh());
  const Problem before = s.problem();
  const std::vector<const Entry*> entries = s.planned_entries();
  const Plan relief = s.planner->relieve(before);
  s.apply(before, relief, entries);
  if (!relief.moves.empty()) return;
  s.apply(before, s.planner->promote(before), entries);
}

void Cache::State::forget_if_gone(Entry& entry) {
  if (entry.pins > 0 || !entry.objects.empty()) return;
  planned.erase(entry.key);
  index.remove(entry.key);
}

bool Cache::work(Executor& executor) {
  State& s = *state_;
  if (s.jobs.empty()) {
    if (!s.plan_due || s.clock.now_s() - s.planned_at_s < s.options.plan_interval_s) return false;
    plan();
    return !s.jobs.empty();
  }
  const Stopwatch background(s.clock, s.stats.background_seconds);
  const Job::Progress progress = s.jobs.front()->step(executor);
  if (progress == Job::Progress::kDeferred) {
    s.jobs.push_back(std::move(s.jobs.front()));
    s.jobs.pop_front();
    return true;
  }
  if (progress != Job::Progress::kDone) return progress == Job::Progress::kWorked;
  Entry& entry = s.jobs.front()->entry();
  s.jobs.pop_front();
  if (entry.pins == 0 && !entry.objects.empty()) {
    // A copy that could not be made is not the entry's placement. What to do instead is seen at the next access: asked
    // at once, the planner would only say the same again.
    Configuration& placed = s.planned[entry.key];
    if (placed.tier == kDropped || !entry.find(placed.method, placed.tier)) {
      const auto fastest = std::ranges::min_element(entry.objects, {}, &StoredObject::tier);
      placed = {fastest->method(), fastest->keep(), fastest->tier};
    }
  }
  s.forget_if_gone(entry);
  return true;
}

void Cache::drain(Executor& executor) {
  using namespace std::chrono_literals;
  while (!state_->jobs.empty()) {
    if (!work(executor)) std::this_thread::sleep_for(200us);  // only I/O is left of the front job
  }
}

bool Cache::idle() const { return state_->jobs.empty(); }

Status Cache::remove(const EntryKey& key) {
  State& s = *state_;
  Entry* entry = s.index.find(key);
  if (!entry) return fail(ErrorCode::kNotFound, "no entry {} in this cache", key.hex());
  if (entry->pins > 0) return fail(ErrorCode::kBusy, "entry {} is being read or written: try again", key.hex());
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
