// The parts of a cache, shared by the files that implement it: cache.cc (opening), cache_choice.cc, cache_retrieve.cc,
// cache_store.cc, cache_pool.cc.
#pragma once

#include <deque>
#include <list>
#include <unordered_set>

#include "cache/cache.h"
#include "cache/lossy_prefixes.h"
#include "cache/meeting.h"
#include "cache/near_lossless.h"
#include "cache/planner_choice.h"
#include "core/lru_map.h"

namespace shale {

// Nobody knows what a form that was never measured does to answers: it is saved as worth nothing.
inline constexpr double kMeasured = 1e-6;
inline constexpr std::size_t kUsedMax = 16384;
inline constexpr double kTellEveryS = 5;

inline std::uint32_t end_of(const StoreLookup::PrefixSpan& span) { return span.first_block + span.blocks; }

// What is known of its quality: the form, and what it is a form of.
inline SourceUsed source_of(const StoreLookup::PrefixSpan& span, bool behind_lossy) {
  SourceUsed source;
  source.method = span.method;
  source.keep = span.keep;
  source.run = span.run;
  source.behind_lossy = behind_lossy;
  return source;
}

struct Cache::State {
  CacheOptions options;
  Fingerprint fingerprint;
  PagePool& pool;
  std::unique_ptr<MetadataStore> metadata_store;
  const Clock& clock;

  CostModel costs = {};
  CacheStats stats = {};
  PlannerChoice planner = {};
  std::vector<Method> methods = {Method::full()};
  bool weighs_quality = false;
  ScorerNeeds scorer_needs = {};           // of the candidates' scorers
  std::vector<std::string> rankings = {};  // of scorers that read what only computing shows
  std::unique_ptr<PrefixTree> tree = {};
  LossyPrefixes lossy = {};
  std::vector<Tier*> tiers = {};  // the store's
  std::unique_ptr<Store> store = {};
  std::deque<PrefillRecord> prefills = {};  // of this process, for the next one
  double refreshed_at_s = 0;                // the metadata store

  // How far methods of coding alone move attention over a run, and where that lies in the store.
  struct Bounding {
    struct Chain {
      std::vector<BlockKey> names;
      std::string tenant;
    };
    std::vector<Method> methods;
    CodingErrors errors;
    Chain chain = {};
  };
  // Runs on their way into the store, whose pages stay in the pool until they are encoded and looked at.
  struct Saving {
    std::unique_ptr<StoreSave> save;
    Sequence held;
    std::uint32_t first = 0;  // token of `held` that is to be encoded
    Hash128 run;
    double recompute_s;
    std::optional<Bounding> bounding;
    std::uint32_t uses = 1;  // since it was handed over

    bool released() const { return save->released() && !bounding; }
  };
  std::list<Saving> saving = {};

  // What the metadata store is told in the end of the runs that were used or stored here last, kUsedMax at most.
  struct Used {
    Frequency accesses;
    std::uint32_t tokens = 0;
    double recompute_s = 0;
    std::string label = {};
  };
  LruMap<Hash128, Used> used = {};
  Status record_used(const Hash128& run, const Used& here);
  bool forgot_old = false;  // the metadata store has
  // And of these, stored behind lossy forms, what others need soon: what they inherited.
  std::unordered_set<Hash128> untold = {};
  double tell_at_s = 0, tell_pause_s = kTellEveryS;

  // A tier that a request gave up waiting for is left alone until then.
  std::vector<double> left_alone_until_s = {};

  // Chains of which the pool holds something, as the store was told.
  struct Pooled {
    std::string salt;
    std::vector<std::int32_t> tokens;
    std::vector<BlockKey> keys, names;
    std::uint32_t blocks = 0;
    std::uint32_t known = 0;  // of these, to the store
    bool lossy = false;
  };
  std::deque<Pooled> pooled = {};
  std::uint64_t loads_begun = 0;
  std::uint64_t evictions_seen = 0;  // of the pool, when the last round of looks began
  std::size_t to_look_at = 0;        // of the chains, the first, in this round
  double next_look_s = 0;            // when the next round may begin because of evictions

  std::vector<std::vector<std::int32_t>> published = {};

  std::uint32_t block_tokens() const { return pool.shape().block_size; }
  // Whether some layers are loaded only as far back as their window goes.
  bool windowed() const {
    return std::ranges::any_of(options.model.windows, [](std::uint32_t window) { return window > 0; });
  }
  std::vector<BlockKey> keys_of(std::span<const std::int32_t> tokens, std::string_view salt) const;
  // The names of the blocks with these keys. Blocks that hold a token beyond the first `reproducible`, or from
  // `lossy_from` on, are of other lineages, so that nobody who demands exact KV meets them.
  std::vector<BlockKey> names_of(std::vector<BlockKey> keys, std::uint32_t reproducible,
                                 std::uint32_t lossy_from = kAllTokens) const;

  // cache.cc
  Status choose_methods();
  std::optional<double> expected(const Hash128& run, const Method& method, double keep) const;
  std::optional<double> quality(const Hash128& run, const Method& method, double keep) const;
  // The same of what was loaded, which may have been computed behind lossy KV.
  std::optional<double> expected(const SourceUsed& source) const;
  std::optional<double> quality(const SourceUsed& source) const;
  Result<ScorerNeeds> needs_of(const Method& method) const;
  Status open_store(std::vector<StoreTier> tiers);
  void recall_costs();
  Status record_learned();
  void tell_inherited();
  Status record_speed(const Tier& tier);
  Used& use(const Hash128& run);

  // cache_choice.cc
  struct Choice {
    std::vector<BlockKey> names;              // of the prompt's blocks, as they are looked up
    std::uint32_t reproducible = kAllTokens;  // of all that is found
    std::uint32_t reproducible_in_pool = 0;   // of what the pool has of the prompt
    std::uint32_t reproducible_at_rest = kAllTokens;
    StoreNeeds needs;
    LossyPrefixes::Found lossy;                  // of the pool, that it begins with
    std::uint32_t lossy_from = kAllTokens;       // what is loaded from this token on was computed behind lossy KV
    std::vector<StoreLookup::PrefixSpan> spans;  // that are loaded, the first of which may begin before first_block
    std::uint32_t pool_tokens = 0;
    std::uint32_t first_block = 0, end_block = 0;  // that are loaded, or that meeting brings
    double arrives_s = 0;                          // until all of them are there, as estimated
    bool counts = true;                            // RequestPolicy
    std::optional<StoreLookup> meets;              // loaded from the back instead, as far as it pays
  };
  Choice choose(std::span<const std::int32_t> wanted, std::span<const BlockKey> keys, const RequestPolicy& policy,
                const Backlog& backlog);
  StoreLookup look_up(std::span<const BlockKey> keys, std::span<const BlockKey> names, StoreNeeds& needs,
                      std::string_view tenant, bool counts);
  void look_up_answers(std::span<const BlockKey> keys, const RequestPolicy& policy, StoreNeeds needs, Choice& choice,
                       StoreLookup& found);
  void look_up_behind_lossy(std::span<const BlockKey> keys, const RequestPolicy& policy, StoreNeeds needs,
                            Choice& choice, StoreLookup& found);
  void choose_lossy(std::span<const BlockKey> keys, const RequestPolicy& policy, const Backlog& backlog,
                    const StoreLookup& found, Choice& choice);
  double loss_s(std::optional<double> quality) const;
  void judge_anew(LossyPrefix& prefix) const;
  std::size_t spans_that_pay(std::span<const StoreLookup::PrefixSpan> spans, std::uint32_t covered,
                             const Backlog& backlog) const;
  bool named_pays(const StoreLookup& found, const Backlog& backlog) const;
  double brought_s(const StoreLookup& found, std::uint32_t tokens) const;
  std::uint32_t loading_begins(const StoreLookup::PrefixSpan& span, std::uint32_t pool_blocks) const;
  std::optional<double> meeting_pays(const StoreLookup& found, std::uint32_t covered, double otherwise_s,
                                     double slowdown) const;

  // cache_retrieve.cc
  std::uint32_t published_tokens(std::span<const std::int32_t> tokens) const;
  // What follows a published prefix is stored with it: nothing lies before it under its salt's own names. False behind
  // a lossy form of that, which is not the salt's to store.
  bool take_in_published(NewRun& run, std::span<const BlockKey> names) const;
  std::uint32_t published_for(std::span<const std::int32_t> wanted, const RequestPolicy& policy);
  // What of a request's tokens is looked up, and by what policy.
  struct Wanted {
    std::span<const std::int32_t> tokens;
    RequestPolicy policy;
  };
  Wanted wanted(std::span<const std::int32_t> tokens, RequestPolicy policy);
  std::uint32_t blocks_in_common(const Retrieval::State& loading, const Choice& choice, bool exact) const;
  static bool reads(const Retrieval::State& loading, const Choice& choice);
  bool comes_in_time(const Retrieval::State& loading, std::uint32_t brought, const Choice& choice,
                     const ComputeBacklog& engine) const;
  std::uint32_t front_in_time(const Retrieval::State& loading, std::uint32_t brought, const Choice& choice) const;
  Meeting::Context meeting_context(const StoreNeeds& needs, std::string_view salt, double slowdown);
  std::uint8_t tiers_left_alone() const;
  void leave_alone(std::uint32_t tier_bits);  // a request gave up waiting for them
  void adopt(std::span<const std::int32_t> tokens, std::uint32_t reproducible_in_pool, std::span<const BlockKey> keys,
             Retrieval::State& found);
  void adopt_lossy(std::span<const std::int32_t> tokens, LossyPrefix& prefix, std::span<const BlockKey> keys,
                   Retrieval::State& found);
  void load(std::span<const std::int32_t> wanted, const Choice& choice, Sequence& sequence, Retrieval& retrieval,
            const Backlog& backlog);

  // cache_store.cc
  void note_stored(const Hash128& name, const NewRun& run, std::uint32_t tokens);
  bool may_store_behind_lossy(const NewRun& run, std::uint32_t tokens) const;
  void inherit(const Hash128& name, double quality, std::span<const BlockKey> names, std::uint32_t before,
               std::string_view tenant);
  bool release_saved();
  bool give_up_storing();
  std::optional<Bounding> bounding(const Hash128& name, std::uint32_t first, std::uint32_t tokens,
                                   const AttentionStatistics& statistics) const;
  bool bound_some();

  // cache_pool.cc
  void note_in_pool(std::span<const std::int32_t> tokens, std::string_view salt, std::vector<BlockKey> keys,
                    std::uint32_t reproducible, std::uint32_t lossy_from = kAllTokens);
  void keep_lossy(LossyPrefix prefix, std::span<const std::int32_t> tokens, std::string_view salt,
                  std::uint32_t reproducible);
  void look_at_pool();
  bool accepts(std::span<const SourceUsed> sources, const RequestPolicy& policy) const;
  LossyPrefixes::Found find_lossy(std::span<const BlockKey> keys, const RequestPolicy& policy);
  std::uint32_t blocks_evictable() const;
  bool evict_until_free(std::uint32_t blocks);
  bool evict_if_enough(std::uint32_t blocks);
};

struct Retrieval::State {
  Cache::State& cache;
  Sequence& sequence;
  std::uint32_t tokens = 0, tokens_loaded = 0;
  std::uint32_t reproducible = kAllTokens;  // so many of the prompt's first tokens, where not all of those are
  bool lossy = false;
  std::uint32_t lossy_from = kAllTokens;  // tokens from this position on were computed behind lossy KV
  std::vector<SourceUsed> sources = {};
  std::uint32_t first_token = 0;  // that is loaded from tiers
  std::string salt = {};
  std::uint64_t number = 0;                         // of the load or the meeting, from 1
  std::vector<BlockKey> names = {};                 // of the prompt's blocks up to the last that it brings
  std::vector<StoreLookup::PrefixSpan> spans = {};  // that are loaded, or that a meeting may load
  std::vector<std::int32_t> chain = {};  // where it is lossy: tokens from the prompt's first to the last loaded
  std::string quantizer = {};            // of all that is loaded; empty where it is of several
  double begun_s = 0;
  double expected_s = 0;              // from then to the last byte, or to where load and compute meet
  std::unique_ptr<StoreLoad> load{};  // null: nothing is left to come
  bool planned = false;               // the sequence holds the pages that will be written, and no others
  std::optional<Failure> failure = {};
  std::unique_ptr<Meeting> meeting{};  // in place of the load

  bool meet(Executor& executor, double budget_s, double before_s);
  bool note_plan();
  void note_end();
  void keep_lossy();
};

}  // namespace shale
