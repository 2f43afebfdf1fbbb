// The parts of a cache, shared by the files that implement it: cache.cc (opening), cache_retrieve.cc, cache_store.cc,
// cache_plan.cc.
#pragma once

#include <deque>
#include <unordered_map>

#include "cache/cache.h"

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
  // What each entry's placed copy is, or will be once its jobs are done.
  std::unordered_map<EntryKey, Configuration> planned = {};
  std::deque<std::unique_ptr<Job>> jobs = {};  // in order: what frees room comes before what takes it
  std::deque<PrefillRecord> prefills = {};     // of this process, for the next one
  std::optional<Error> warning = {};
  bool plan_due = false;
  double planned_at_s = 0;

  std::uint32_t lowest() const { return static_cast<std::uint32_t>(tiers.size() - 1); }
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
  };
  Sources choose_sources(std::span<const std::int32_t> wanted, const Demand& demand);
  const StoredObject* choose_copy(const EntryIndex::Link& link, const Demand& demand) const;
  bool start_load(const LoadChoice& choice, Sequence& sequence, Retrieval& retrieval);
  Result<ObjectDecoder> start_decoder(const Manifest& manifest, double keep, Bits bits, std::uint32_t tokens,
                                      Sequence& into);

  // cache_store.cc
  Result<ScorerNeeds> needs_of(const Method& method) const;
  Configuration place(Entry& entry);

  // cache_plan.cc
  Problem problem() const;
  bool has_source(const Entry& entry) const;
  std::vector<const Entry*> planned_entries() const;
  void apply(const Problem& problem, const Plan& plan, std::span<const Entry* const> entries);
  void queue_move(Entry& entry, const Configuration& to);
  void trim_bases(const Problem& problem, std::span<const std::uint32_t> placement,
                  std::span<const Entry* const> entries);
};

}  // namespace shale
