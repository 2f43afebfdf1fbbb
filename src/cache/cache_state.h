// The parts of a cache, shared by the files that implement it: cache.cc (opening), cache_retrieve.cc, cache_store.cc,
// cache_plan.cc, cache_pool.cc, cache_work.cc.
#pragma once

#include <deque>
#include <unordered_map>

#include "cache/cache.h"
#include "cache/job_queue.h"
#include "placement/placement_state.h"

namespace shale {

struct Cache::State {
  CacheOptions options;
  Fingerprint fingerprint;
  PagePool& pool;
  std::vector<std::unique_ptr<Tier>> tiers;
  std::unique_ptr<Catalogue> catalogue;
  const Clock& clock;

  EntryIndex index = {};
  CostModel costs = {};
  CacheStats stats = {};
  std::unique_ptr<Planner> planner = {};
  std::optional<Candidates> candidates = {};
  ScorerNeeds needs = {};  // of the candidates' scorers
  std::unique_ptr<PrefixTree> tree = {};
  std::optional<JobContext> context = {};
  struct Planned {
    Configuration placed = {};             // its placed copy, or what that will be once its jobs are done
    std::optional<PlacementSlot> slot{};   // once the placement knows the entry
    std::vector<std::uint64_t> held = {};  // by tier: bytes of its chunks
    double pool_share = 0;                 // of its tokens, that the pool held when last looked
  };
  std::unordered_map<EntryKey, Planned> planned = {};
  std::unique_ptr<PlacementBackend> mover = {};  // queues the jobs that carry out what the placement decides
  std::unique_ptr<PlacementState> placement = {};
  std::vector<Entry*> by_slot = {};
  std::size_t revised = 0;                // the slot up to which candidates were looked at again
  std::vector<std::uint64_t> held = {};   // by tier: of all entries
  std::deque<EntryKey> pooled = {};       // whose pool_share is not 0
  std::uint64_t evictions_looked_at = 0;  // of the pool, when last looked
  JobQueue jobs = {};
  std::deque<PrefillRecord> prefills = {};  // of this process, for the next one
  std::optional<Error> warning = {};
  // A tier that a request gave up waiting for is left alone until what it owes has come, or for a while.
  struct LateTier {
    std::weak_ptr<TierRead> read;
    double until_s = 0;
  };
  std::vector<LateTier> late_tiers = std::vector<LateTier>(tiers.size());
  bool plan_due = false;
  double planned_at_s = 0;

  std::uint32_t lowest() const { return static_cast<std::uint32_t>(tiers.size() - 1); }
  bool keeps_everything() const { return tiers.back()->capacity_bytes() == kUnlimited; }
  std::optional<double> quality(const EntryKey& key, const Method& method, double keep) const;
  void forget_if_gone(Entry& entry);

  // cache.cc
  void recall_costs();
  Status scan(std::uint32_t tier);
  void skip_unusable(Tier& tier, const StoredManifest& stored);
  void adopt_placements();
  Status remember();

  // cache_retrieve.cc
  struct LoadChoice {
    EntryIndex::Link link;
    const StoredObject* object;
    double keep;
    Bits bits;
  };
  struct Sources {
    std::uint32_t pool_tokens;
    std::vector<LoadChoice> loads;
    double arrives_s = 0;  // until all of them are there, as estimated
  };
  Sources choose_sources(std::span<const std::int32_t> wanted, const Demand& demand, const Backlog& backlog);
  bool is_late(std::uint32_t tier) const;
  const StoredObject* choose_copy(const EntryIndex::Link& link, const Demand& demand) const;
  bool start_load(const LoadChoice& choice, Sequence& sequence, Retrieval& retrieval);
  Result<ObjectDecoder> start_decoder(const Manifest& manifest, double keep, Bits bits, std::uint32_t tokens,
                                      Sequence& into);

  // cache_store.cc
  Result<ScorerNeeds> needs_of(const Method& method) const;
  Configuration place(Entry& entry);

  // cache_work.cc
  void settle(Entry& entry);

  // cache_plan.cc
  class Mover;
  void start_placement();
  bool has_source(const Entry& entry) const;
  void touch(Entry& entry, double now_s);
  void catch_up();
  void revise(Entry& entry, bool pinned);
  void revise_some();
  void note_capacities();
  void queue_move(Entry& entry, const Configuration& to);

  // cache_pool.cc
  double share_in_pool(const Entry& entry) const;
  void note_in_pool(const Entry& entry, double share);
  void note_in_pool(std::span<const EntryIndex::Link> chain, std::uint32_t tokens);
  void look_at_pool();
};

}  // namespace shale
