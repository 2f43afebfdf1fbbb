// What a request takes of the tiers, and of the engine's own pool.
#include <algorithm>
#include <utility>

#include "placement/load_and_compute.h"
#include "sim/simulated_meeting.h"
#include "sim/tiered_engine.h"

namespace shale {

// What is stored of the path, from its first context on, and when it is there: what computes the rest is not known yet.
TieredEngine::Reads TieredEngine::reads_of(std::span<const ContextId> path, double at_s, const Waits& waits) const {
  std::vector<Read> reads;
  std::vector<LoadedUpTo> loads;
  std::vector<double> free_s = waits.tiers_s;  // by tier
  std::uint64_t used = 0;                      // tiers, a bit each
  double read_s = 0, transferred_s = 0, decoded_s = 0, lost_s = 0;
  for (const ContextId id : path) {
    const bool others = !prefixes_[id].slot;
    if (others ? !(shared_ && shared_->has(id)) : vanished(id)) break;
    if (reads.empty()) {
      reads.reserve(path.size());
      loads.reserve(path.size());
    }
    const Candidate from = others ? full_at_lowest(id) : placed(id);
    const SimulatedTier& tier = tiers()[from.tier];
    double transfer_s = static_cast<double>(from.bytes) / tier.read_bytes_per_s;
    if (is_shared(from.tier)) transfer_s = std::max(transfer_s, shared_->transfer_s(from.bytes, at_s + read_s));
    if (!(used >> from.tier & 1)) transfer_s += tier.latency_s;
    used |= std::uint64_t{1} << from.tier;
    const double decode = decode_s(id, from);
    read_s += transfer_s + decode;
    decoded_s += decode;
    if (free_s.empty()) {
      transferred_s += transfer_s;
    } else {
      free_s[from.tier] += transfer_s;
      transferred_s = std::max(transferred_s, free_s[from.tier]);
    }
    const double expected = std::min(from.quality, prefixes_[id].inherited);
    if (weighs_quality_) lost_s = std::max(lost_s, options_.alpha * (1 - expected));
    reads.push_back({from, transfer_s + decode, decode});
    loads.push_back({.ready_s = transferred_s + decoded_s, .lost_s = lost_s});
  }
  return {.reads = std::move(reads), .loads = std::move(loads)};
}

// As Cache::State::spans_that_pay, but that decoding counts, too; and as meeting_pays.
TieredEngine::Reads TieredEngine::reads_that_pay(std::span<const ContextId> path, double at_s,
                                                 const Waits& waits) const {
  Reads found = reads_of(path, at_s, waits);
  double rest_s = 0;
  for (std::size_t i = found.loads.size(); i-- > 0;) {
    found.loads[i].rest_s = rest_s;
    rest_s += recompute_s(path[i]);
  }
  const std::size_t loaded = loads_that_pay(found.loads, rest_s, waits.engine);
  const std::size_t met = waits.meet ? exact_to_meet(path, found, loaded, waits) : 0;
  found.meet = met > 0;
  found.reads.resize(found.meet ? met : loaded);
  return found;
}

// How many contexts, exact from the first on, are there soonest where they are computed while they are loaded.
std::size_t TieredEngine::exact_to_meet(std::span<const ContextId> path, const Reads& found, std::size_t loaded,
                                        const Waits& waits) const {
  std::size_t exact = 0;
  std::uint64_t tokens = 0;
  double all_s = 0, rest_s = 0;
  for (const Read& read : found.reads) {
    if (read.from.method != kFullMethod || prefixes_[path[exact]].behind_lossy) break;
    const double seconds = waits.engine.slowdown * recompute_s(path[exact]);
    tokens += contexts_.all()[path[exact]].tokens;
    all_s += seconds;
    if (exact >= loaded) rest_s += seconds;
    ++exact;
  }
  if (tokens < 2 * kSimulatedMeetingChunk || waits.engine.compute_s > 0) return 0;
  const double otherwise_s = (loaded > 0 ? found.loads[loaded - 1].ready_s : 0) + rest_s;
  return worth_meeting(met_after_s(all_s, found.loads[exact - 1].ready_s), otherwise_s) ? exact : 0;
}

// As Cache::State::choose.
std::size_t TieredEngine::pooled_that_pay(std::span<const ContextId> path, std::span<const Served::Part> pooled,
                                          double now_s, const Waits& waits) const {
  const auto exact = static_cast<std::size_t>(std::ranges::find(pooled, false, &Served::Part::exact) - pooled.begin());
  if (exact == pooled.size() || !weighs_quality_) return pooled.size();
  double expected = 1, computed_s = 0;
  for (std::size_t i = exact; i < pooled.size(); ++i) {
    expected = std::min(expected, pooled[i].expected);
    computed_s += recompute_s(path[i]);
  }
  double otherwise_s = waits.engine.compute_s + waits.engine.slowdown * computed_s;
  const std::vector<LoadedUpTo> loads = reads_of(path.subspan(exact, pooled.size() - exact), now_s, waits).loads;
  if (exact + loads.size() == pooled.size()) {
    otherwise_s = std::min(otherwise_s, loads.back().ready_s + loads.back().lost_s);
  }
  return options_.alpha * (1 - expected) < otherwise_s ? pooled.size() : exact;
}

TokensByForm TieredEngine::tokens_lossy() const {
  TokensByForm by_form;
  for (const auto& [form, tokens] : lossy_) by_form[{methods_[form.first], form.second}] = tokens;
  return by_form;
}

}  // namespace shale
