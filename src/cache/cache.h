// Where pool and store meet: an engine's prefixes, in blocks that attention reads now and in extents at rest.
//
//   Cache ── owns ──> PrefixTree     exact blocks that still lie in the pool
//                 ──> LossyPrefixes  what was loaded lossily and still does, and what was computed behind it
//                 ──> Store          everything at rest: index, tiers, placement, encoding
//                 ──> MetadataStore      what was measured: quality of every configuration, costs of this machine
//                 ──> CostModel      what computing and decoding take
//
// The store holds whole blocks of a prompt's tokens, named by a chain of hashes over all tokens before them. So prompts
// that begin alike share these blocks, wherever a prompt was cut and whoever stored it. The blocks of one span, which
// are stored together, are a *run*; its name stands for its tokens and for everything before them.
//
// Not thread-safe: the engine's loop owns it. I/O completes on the tiers' own threads. The pool, the clock and every
// Sequence handed in must outlive it; every Retrieval must be gone before it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cached_tokens.h"
#include "cache/compressed_run.h"
#include "cache/cost_model.h"
#include "cache/kv_events.h"
#include "cache/retrieval.h"
#include "core/clock.h"
#include "core/executor.h"
#include "metadata/answer_metric.h"
#include "metadata/metadata_store.h"
#include "paging/prefix_tree.h"
#include "placement/load_or_compute.h"
#include "placement/placement.h"
#include "placement/placement_state.h"
#include "scoring/attention_statistics.h"
#include "store/store.h"

namespace shale {

// Name of the run that ends with this block.
Hash128 run_name(const BlockKey& last);

// Everything that must agree before stored bytes may be read: weights, tokenizer, RoPE settings. Two fingerprints are
// compared by `hash` alone; geometry, element and block are the store's to compare.
struct Fingerprint {
  Hash128 hash;
  std::string model;  // for people
};

// The namespace in which a store keeps what that model computed (StoreOptions).
std::string name_space_of(const Fingerprint& fingerprint);

struct CacheOptions {
  std::string planner = "shale";   // parse_planner
  PlannerOptions planner_options;  // but for its form
  std::string eviction = "lru";    // of the pool's prefix tree
  double alpha = 1.0;              // seconds of waiting that one unit of quality is worth
  double frequency_half_life_s = 600;
  // The metric that quality is measured, expected and demanded in; null: kAgreement.
  std::shared_ptr<AnswerMetric> metric = {};
  // The planner compresses nothing so far that less is expected of answers, in that metric. A method that a request
  // names is not its choice.
  double quality_floor = 0;
  // What the planner may choose from, besides `full`.
  std::vector<std::string> methods = {"knorm", "keydiff", "snapkv", "int8", "kivi4", "keydiff+int8", "snapkv+int8"};
  ScorerOptions scorers;
  ModelTraits model;  // of the model that computes what is stored
  // That model's tables, for quantizers that need them; must outlive the cache. Null: methods that need them are
  // refused.
  const CachegenTables* tables = nullptr;
  // Load what is stored even where computing it again is estimated to be faster, and be patient with tiers that are
  // late: for callers that cannot compute, and for measurements.
  bool load_always = false;
  std::uint32_t chunk_tokens = 256;                            // StoreOptions
  std::uint64_t staging_bytes = StoreOptions().staging_bytes;  // likewise
  // Compute a prefix from its front while chunks of it are loaded from the back (meeting.h), where nobody else waits to
  // be computed and the first token comes sooner so.
  bool meet = true;
  // Some of what is inserted and stored may not be reproducible (model/model.h): it is looked for, too.
  bool quick_answers = false;
  std::function<double()> wall_clock = {};                              // seconds since 1970; empty: the machine's
  std::map<std::string, std::uint64_t, std::less<>> tenant_bytes = {};  // Store::set_quota()
  std::shared_ptr<KvEvents> events = {};                         // told what lies where; null: nobody wants to know
  std::function<void(const PlacementEvent&)> on_placement = {};  // for tests: shown every call, to be replayed
};

// The salt that says whose KV it is: a tenant's, which the store counts and bounds, and within a tenant that of
// requests with the same salt. Empty where both are: everybody's. No tenant's name has a line's end.
std::string salt_of(std::string_view tenant, std::string_view salt);
std::string_view tenant_of(std::string_view salt);  // of one that salt_of() made

// What a request accepts.
struct RequestPolicy {
  bool exact = false;                 // only KV that is bit for bit what computing the prompt gives
  std::optional<Method> method = {};  // this compression, at `keep` or the next keep of the grid; without a copy of it,
                                      // exact KV, of which the engine makes one
  double keep = 1.0;
  // Answers over lossy forms that it does not name must be expected to be worth as much, in the cache's metric.
  double quality_min = 0;
  // Only KV of the same salt is found, and only requests of the same salt find what this one leaves: what of it is
  // cached, and so how soon it is answered, tells others nothing (vLLM's cache_salt). What is published is found by
  // all.
  std::string salt = {};
  // As a look-up, and a use of what it finds; false: nothing is placed otherwise because of it.
  bool counts = true;
  // A lossy method is asked for by name. `exact` is stronger.
  bool named() const { return !exact && method && !method->is_full(); }
};

// What a request has before it when it begins.
struct Backlog {
  ComputeBacklog engine;
  bool pool_only = false;  // no tier is asked
  bool meet = false;       // the caller computes up to Retrieval::compute_until() while the rest is loaded
  // Frees blocks of the pool for what is loaded; false where it cannot, and then nothing that waits to be stored was
  // given up for it. Empty: evicts what is kept for later requests.
  std::function<bool(std::uint32_t blocks)> ensure_free = {};
};

// Since the cache was opened. Store::stats() has what the store counts, such as damage, bytes by tier and what was
// compressed or dropped.
struct CacheStats {
  std::uint64_t lookups = 0, hits = 0;  // of requests that count (RequestPolicy)
  CachedTokens cached = {};
  std::uint64_t failed_loads = 0;  // of which not every block came: damaged, gone or unreadable
  std::uint64_t late_loads = 0;    // that a request gave up waiting for
  std::uint64_t meetings = 0;      // prefixes computed from the front and loaded from the back
  // Keys of three heads that IMPRESS would have read of what was loaded, before it knew what to load: counted under
  // its planner, not read, since importance is known when a run is stored.
  std::uint64_t head_bytes = 0;
  std::uint64_t given_up = 0;          // runs that were to be stored, and were dropped for requests instead
  std::uint64_t chains_looked_at = 0;  // of the pool, after it had evicted something; for tests
  double background_seconds = 0;       // encoding, writing and moving, as the engine's thread took part in it
};

// Tokens that were computed together and are to be found again. A run without a whole block is not stored.
struct NewRun {
  std::vector<std::int32_t> tokens;  // of the chain: from the prompt's first to the run's last
  std::uint32_t first = 0;           // position of the run's first token; what is stored begins with the block it is in
  // So many of the chain's first tokens are reproducible (model/model.h). Blocks with any other have names of their
  // own.
  std::uint32_t reproducible = kAllTokens;
  // Tokens from this position on were computed behind lossy KV. What is stored begins there at the earliest, under
  // names of its own, for requests that accept as much; answers over that KV are expected to be worth `inherited`.
  // Where nobody knows what, nothing is stored, unless the planner has one form for all.
  std::uint32_t lossy_from = kAllTokens;
  std::optional<double> inherited = {};
  // What scorers may read beside pages, of the run's whole blocks: from the beginning of the block that `first` is in
  // to the end of the last whole one. May be empty.
  AttentionStatistics statistics = {};
  double recompute_s = 0;             // what computing it just cost; 0 when it was not computed
  std::string label = {};             // for people: a file name, the first words
  std::optional<Method> method = {};  // store it in this form too, which a request named, at `keep`
  double keep = 1;
  std::string salt = {};                 // of those who find it (RequestPolicy)
  std::optional<ContextKind> kind = {};  // what the text of these tokens is like; nothing: not looked at
};

class Cache {
 public:
  // `tiers` fast to slow, at least one; no two have the same name. Objects of other models are left alone. `metadata
  // store` may be null: then nothing is known of quality and the planner places uncompressed copies only, or the one
  // form that it is told. kInvalidArgument for unknown names, and for candidate methods that need more of the model
  // than it gives; errors of Store::open.
  static Result<std::unique_ptr<Cache>> open(CacheOptions options, Fingerprint fingerprint, PagePool& pool,
                                             std::vector<StoreTier> tiers,
                                             std::unique_ptr<MetadataStore> metadata_store, const Clock& clock);
  // Records in the metadata store how often runs were used and what things cost here. What waits to be encoded is
  // given up: call drain first.
  ~Cache();

  const Fingerprint& fingerprint() const;
  PagePool& pool();
  const PagePool& pool() const;
  Store& store();
  const Store& store() const;
  std::span<Tier* const> tiers() const;  // the store's, fast to slow
  // Whether requests wait for the tier with this index; not for a while after one gave up waiting.
  bool waits_for(std::size_t tier) const;
  MetadataStore* metadata_store();
  CostModel& costs();
  const CostModel& costs() const;
  const Clock& clock() const;  // of the tiers
  const CacheOptions& options() const;
  // The name of what quality is measured in.
  std::string_view metric() const;
  // What the planner chooses from; the first is `full`.
  const std::vector<Method>& methods() const;
  // Whether it asks what answers are worth: with a metadata store, pages of halves, and a planner that weighs quality.
  bool weighs_quality() const;
  const CacheStats& stats() const;
  // The engine computed `tokens` on top of `depth` in this time.
  void note_prefill(std::uint32_t tokens, std::uint32_t depth, double seconds);

  std::uint32_t block_tokens() const;
  // How many of `tokens` are in whole blocks: the part of a prefix that can be stored.
  std::uint32_t whole_blocks(std::size_t tokens) const;
  // Names of the whole blocks of a chain that is reproducible, for calls of store().
  std::vector<BlockKey> keys_of(std::span<const std::int32_t> tokens, std::string_view salt = {}) const;
  // Name of the run that ends with the last whole block of a chain, by which qualities, questions and labels are kept;
  // zero where there is none.
  Hash128 run_of(std::span<const std::int32_t> tokens, std::string_view salt = {}) const;

  // Fills the empty `sequence` with the longest prefix of `tokens` that is cheaper to fetch than to compute, and starts
  // reading. At least the last token is left to compute. The pool gives single tokens, tiers whole blocks. A hit that
  // ends inside a stored run takes exact blocks of it. Counts as a use of every extent along the prefix. Finding
  // nothing is an empty retrieval. Never waits.
  Retrieval retrieve(std::span<const std::int32_t> tokens, const RequestPolicy& policy, Sequence& sequence,
                     const Backlog& backlog = {});
  // Whether `retrieve` would load the beginning of it now, and computing would wait for that. Counts as no use.
  bool would_load(std::span<const std::int32_t> tokens, const RequestPolicy& policy, const Backlog& backlog);
  // Which of these loads and meetings, all still to end, brings what `retrieve` would load, or more of it: by reading
  // the same bytes, or no later than loading and computing would. Where none does, which brings most of its front, so
  // that the rest is loaded behind that no later than all of it would be. What came is found once it is inserted.
  // Counts as no use.
  SharedLoad shared_load(std::span<const Retrieval* const> loads, std::span<const std::int32_t> tokens,
                         const RequestPolicy& policy, const Backlog& backlog);
  // Takes what others left in the pool of the request's prompt meanwhile, where that is at least a block more: the
  // sequence and the retrieval are then of that, and nothing else; false where not. Nothing of the prompt may have been
  // computed since `retrieval` was whole.
  bool rematch(std::span<const std::int32_t> tokens, const RequestPolicy& policy, Sequence& sequence,
               Retrieval& retrieval);
  // Counts a retrieval with a failure(), which is not found again. Blocks before the first that did not come stay in
  // the sequence where they are exact; all else is dropped. Returns the retrieval of what stays.
  Retrieval keep_what_came(Retrieval retrieval, Sequence& sequence);
  // Nobody waits for the retrieval any longer: counted, and tiers that still owe it bytes are not asked for a while.
  void give_up(Retrieval retrieval);

  // Makes these tokens a public prefix: requests of every salt whose prompts begin so find the whole blocks in common
  // that requests without a salt left. Nobody can tell whose beginning that is.
  void publish(std::vector<std::int32_t> tokens);

  // How many tokens at the start of `tokens` lie in the pool, reproducible or not. Touches nothing.
  std::uint32_t pool_prefix(std::span<const std::int32_t> tokens, std::string_view salt = {}) const;
  // How many of the blocks that would serve them are not the pool's to evict now.
  std::uint32_t pool_blocks_in_use(std::span<const std::int32_t> tokens, const RequestPolicy& policy) const;
  // The pages of an exact sequence, the first `reproducible` of whose tokens are so, become available to later
  // requests.
  void insert_prefix(std::span<const std::int32_t> tokens, const Sequence& sequence,
                     std::uint32_t reproducible = kAllTokens, std::string_view salt = {});
  // So do those of one that was computed behind lossy KV, to requests that accept as much: what was found of these
  // tokens is in `sources`, and what was computed behind lossy KV begins at `lossy_from` (Retrieval).
  void insert_behind_lossy(std::span<const std::int32_t> tokens, const Sequence& sequence,
                           std::vector<SourceUsed> sources, std::uint32_t lossy_from, std::string_view salt = {});
  // The same of a sequence that ends with the run's last token, the run in the form that `run.method` and `run.keep`
  // name, exact before: for requests that accept that form.
  void keep_form(const NewRun& run, const Sequence& sequence);
  // More is known of what forms of a run are worth: its extents are placed anew, and what the pool has of it in a form
  // that is not good enough any more counts as not held.
  void place_again(const Hash128& run);
  // Frees pool blocks by evicting what is kept for later requests until `blocks` are free; false when it cannot, or not
  // without keeping fewer than `left` of them.
  bool evict_until_free(std::uint32_t blocks, std::uint32_t left = 0);
  // The same, but evicts nothing where that would not be enough.
  bool evict_if_enough(std::uint32_t blocks);
  // Evicts what only one sequence holds of these blocks beside the prefix cache: they are its own then.
  void give_up(std::span<const PoolBlockId> blocks);
  // Blocks of the pool that evict_until_free could free: kept for later requests alone. And those that giving up
  // storing would add.
  std::uint32_t blocks_evictable() const;
  std::uint32_t blocks_waiting_to_be_stored() const;
  // Blocks that would be free or evictable were all storing given up, and these references, one for each time that a
  // block is named. Visits every block. What lossy prefixes hold counts about.
  std::uint32_t blocks_free_without_storing(std::vector<PoolBlockId> given_back = {}) const;
  // Blocks that are to be encoded, those that requests still use included: when these end, the next that needs blocks
  // has them, and what is not encoded by then is given up. What is merely looked at is not among them.
  std::uint32_t blocks_waiting_to_be_encoded() const;

  // Stores the whole blocks of the run that are not at rest yet, of a `sequence` that holds its chain, exact but for
  // what `run.lossy_from` says; their pages stay in the pool until they are encoded. Returns its name.
  Hash128 store(NewRun run, const Sequence& sequence);

  // The needs of all scorers of candidate methods that the planner may choose, and of one method's: none without a
  // scorer.
  const ScorerNeeds& needs() const;
  Result<ScorerNeeds> needs(const Method& method) const;
  // Whether everything is stored in one form that is ranked by what the model attends to while it repeats a run.
  bool stores_by_repetition() const;
  // What a run lacks of those needs, in words; empty where it can be ranked.
  std::string missing(const ScorerNeeds& needs, std::uint32_t tokens, const AttentionStatistics& statistics) const;

  // The codec for compressing in memory (compressed_run.h), so that the result is what the store would keep. Refers to
  // the options.
  RunCodec codec() const;
  // Compresses the run's whole blocks at once, for profiling. `from` holds the run's chain.
  Result<CompressedRun> compress(const NewRun& run, const Method& method, const Sequence& from, Executor& executor);
  // Appends the run's tokens at `keep` to `into` (RunExpander), evicting from the prefix tree where the pool has no
  // room, as evict_until_free: begins to, and at once.
  Result<RunExpander> expand(const CompressedRun& run, double keep, Sequence& into, std::uint32_t left = 0);
  // All of that at once. For tests.
  Status decompress(const CompressedRun& run, double keep, Sequence& into, Executor& executor);

  // Does one bounded piece (about a millisecond a thread, and one for every quantizer that is looked at) of queued
  // work; false when there is nothing to do now.
  bool work(Executor& executor);
  // Gives up looking at a run that is stored, or storing the waiting run that is worth least, counted in
  // stats().given_up: its pages are the pool's again. False where nothing waits that could be given up.
  bool give_up_storing();
  // Tells the metadata store now what it is told in the end otherwise: costs, and what was used. What cannot be
  // recorded now is in the end. The first call has it forget what is old.
  void record_learned();
  // Works until nothing is queued or being written. Blocks.
  void drain(Executor& executor);
  bool idle() const;
  // Whether anything is still to be stored, or may be.
  bool stores_any() const;

  // Blocks until nothing is queued.
  Status check_integrity();

 private:
  friend class Retrieval;
  struct State;
  explicit Cache(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
