// Where placement, tiers, codec and pages meet: look up, retrieve, store, manage.
//
//   Cache ── owns ──> EntryIndex     what is known: entries and where their copies are
//                 ──> Tier …         bytes, fast to slow
//                 ──> PrefixTree     exact pages still in the pool
//                 ──> JobQueue       encoding, writing, moving: in bounded pieces
//
// An entry has one *placed* copy (the configuration that the planner chose) and, while the lowest tier has room beside
// what is placed there, a *base*: the uncompressed object on the lowest tier, so that every loss can be undone.
//
// Not thread-safe: the engine's loop owns it. I/O completes on the tiers' own threads. The pool, the clock and every
// Sequence handed in must outlive it; every Retrieval must be gone before it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/candidates.h"
#include "cache/catalogue.h"
#include "cache/cost_model.h"
#include "cache/entry_index.h"
#include "cache/job.h"
#include "cache/retrieval.h"
#include "codec/object.h"
#include "core/clock.h"
#include "core/executor.h"
#include "paging/prefix_tree.h"
#include "placement/placement.h"
#include "placement/placement_state.h"
#include "scoring/observations.h"
#include "tier/tier.h"

namespace shale {

struct CacheOptions {
  std::string planner = "shale";
  PlannerOptions planner_options;
  std::string eviction = "lru";  // of the pool's prefix tree
  double alpha = 1.0;            // seconds of waiting that one unit of quality is worth
  double frequency_half_life_s = 600;
  // What the planner may choose from, besides `full`.
  std::vector<std::string> methods = {"knorm", "keydiff", "snapkv", "int8", "kivi4", "keydiff+int8", "snapkv+int8"};
  ScorerOptions scorers;
  ModelTraits model;  // of the model that computes what is stored
  // Of that model, for quantizers that need them; must outlive the cache. Null: methods that need them are refused.
  const CachegenTables* tables = nullptr;
  // Load what is stored even where computing it again is estimated to be faster: for callers that cannot compute, and
  // for measurements.
  bool load_always = false;
  std::uint32_t entry_tokens_min = 16;                           // shorter segments are not stored
  double plan_interval_s = 0.5;                                  // between two rounds of planning in idle moments
  std::function<void(const PlacementEvent&)> on_placement = {};  // shown every call of the placement, to be replayed
};

// What a request accepts.
struct Demand {
  bool exact = false;            // only bit-exact KV
  std::optional<Method> method;  // this compression, at `keep` or the next keep of the grid; without a copy of it,
                                 // exact KV, of which the engine makes one
  double keep = 1.0;
  // A lossy method is asked for by name. `exact` is stronger.
  bool named() const { return !exact && method && !method->is_full(); }
};

// What a request has before it when it begins.
struct Backlog {
  double compute_s = 0;    // until the engine could begin to compute its prompt
  bool pool_only = false;  // no tier is asked
};

class Cache {
 public:
  // Scans the tiers (fast to slow, at least one) for objects of this fingerprint. Damaged objects are counted, and what
  // is abandoned (stored.h) is removed; what cannot be removed is skipped and the first one's error is `warning`. Other
  // models' are left alone. `catalogue` may be null: then nothing is known of quality and only uncompressed copies are
  // placed. kInvalidArgument for unknown names, and for candidate methods that need more of the model than it gives.
  static Result<std::unique_ptr<Cache>> open(CacheOptions options, Fingerprint fingerprint, PagePool& pool,
                                             std::vector<std::unique_ptr<Tier>> tiers,
                                             std::unique_ptr<Catalogue> catalogue, const Clock& clock);
  // Remembers in the catalogue how often entries were used and what things cost here. Does not wait for queued work:
  // call drain first.
  ~Cache();

  const std::optional<Error>& warning() const;

  const Fingerprint& fingerprint() const;
  PagePool& pool();
  const PagePool& pool() const;
  std::span<const std::unique_ptr<Tier>> tiers() const;
  Catalogue* catalogue();
  const CostModel& costs() const;
  const Clock& clock() const;  // of the tiers
  // The engine computed `tokens` on top of `depth` in this time.
  void note_prefill(std::uint32_t tokens, std::uint32_t depth, double seconds);
  // Decoding so many stored bytes took this time.
  void note_decode(std::string_view quantizer, std::uint64_t bytes, double seconds);
  EntryIndex& index();
  const Candidates& candidates() const;
  const CacheOptions& options() const;
  const CacheStats& stats() const;

  // Fills the empty `sequence` with the longest prefix of `tokens` that is cheaper to fetch than to compute, and starts
  // reading. At least the last token is left to compute. Counts as an access of every entry along the prefix of which
  // the prompt holds at least half: sharing a template's head with a document is no use of it. Finding nothing is an
  // empty retrieval. Never waits.
  Retrieval retrieve(std::span<const std::int32_t> tokens, const Demand& demand, Sequence& sequence,
                     const Backlog& backlog = {});
  // After Retrieval::failure: counted, and not found again by this process; a damaged object is removed.
  void report_failure(Retrieval retrieval);

  // Nobody waits for the retrieval any longer: counted, and tiers that still owe it bytes are not asked for a while.
  void give_up(Retrieval retrieval);

  // How many tokens at the start of `tokens` lie in the pool. Touches nothing.
  std::uint32_t pool_prefix(std::span<const std::int32_t> tokens) const;
  // Of the slabs that hold them, those that are not the pool's to evict now.
  std::uint32_t pool_slabs_in_use(std::span<const std::int32_t> tokens) const;
  // The pages of an exact sequence become available to later requests.
  void remember(std::span<const std::int32_t> tokens, const Sequence& sequence);
  // Frees pool slabs by evicting from the prefix tree until `slabs` are free; false when it cannot.
  bool make_room(std::uint32_t slabs);
  // Of the pool's slabs that are not free, those that make_room could have: kept for later requests alone. And those
  // that giving up storing would add.
  std::uint32_t slabs_evictable() const;
  std::uint32_t slabs_waiting_to_be_stored() const;

  struct NewEntry {
    EntryKey parent;  // of the entry that ends at first_position; zero for a root
    std::uint32_t first_position = 0;
    std::vector<std::int32_t> tokens;
    Observations observations;               // what scorers may read beside its pages; may be empty
    double recompute_s = 0;                  // what computing it just cost; 0 when it was not computed
    std::string label;                       // for people: a file name, the first words
    std::optional<Configuration> placed_as;  // method and keep that a request forced, instead of the planner's choice
  };
  EntryKey key_of(const EntryKey& parent, std::span<const std::int32_t> tokens) const;
  // Queues the entry, whose tokens an exact `sequence` holds at first_position, for storing; its pages stay in the pool
  // until encoded. Of entries that are stored already, observations are kept that were not stored with them; nothing
  // happens for those too short. Returns its key.
  EntryKey store(NewEntry entry, const Sequence& sequence);

  // What the scorers of the candidate methods read, and what one method's reads: nothing where it has no scorer.
  const ScorerNeeds& needs() const;
  Result<ScorerNeeds> needs(const Method& method) const;
  // What those needs lack of an entry, in words; empty where it can be ranked.
  std::string missing(const ScorerNeeds& needs, std::uint32_t tokens, const Observations& observations) const;
  // Asks for those stored with an entry.
  StoredObservations stored_observations(const EntryKey& key);

  // Compresses at once what `store` would later: for requests that name a method, and for profiling. `from` holds the
  // entry's tokens at first_position.
  Result<ObjectBytes> compress(const NewEntry& entry, const Method& method, const Sequence& from, Executor& executor);
  // Appends the object's tokens at `keep` to `into`.
  Status decompress(const ObjectBytes& object, double keep, Sequence& into, Executor& executor);

  // Everything that the planner would see now, placements as they will be once queued work is done.
  Problem problem() const;
  // The planner's turn; its moves are queued.
  void plan();
  // Does one bounded piece (about a millisecond a thread) of queued work; false when there is nothing to do now.
  bool work(Executor& executor);
  // Gives up storing what is worth least of what waits for it, counted in stats().given_up: its pages are the pool's
  // again. False where nothing waits that could be given up.
  bool give_up_storing();
  // Works until nothing is queued or being written.
  void drain(Executor& executor);
  bool idle() const;

  // Removes an entry and everything stored of it. kNotFound; kBusy while it is being read or written.
  Status remove(const EntryKey& key);

  Status check_integrity() const;

 private:
  struct State;
  explicit Cache(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
