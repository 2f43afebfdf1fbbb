// Where placement, tiers, codec and pages meet: look up, retrieve, store, manage.
//
//   Cache ── owns ──> EntryIndex     what is known: entries, their stored objects, per tier
//                 ──> Tier …         bytes, fast to slow
//                 ──> PrefixTree     exact pages still in the pool
//                 ──> Job queue      encoding, writing, moving: in bounded pieces, when nobody waits
//
// An entry has at most one *placed* object (the configuration that the planner chose) and, room permitting, a *base*:
// the uncompressed object on the lowest tier, so that every loss can be undone. Bases take only the room that placed
// objects leave; they go first, least useful first.
//
// Not thread-safe: the engine's loop owns it. I/O completes on the tiers' own threads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/catalogue.h"
#include "cache/cost_model.h"
#include "cache/entry_index.h"
#include "cache/retrieval.h"
#include "codec/object.h"
#include "core/clock.h"
#include "core/executor.h"
#include "paging/prefix_tree.h"
#include "placement/placement.h"
#include "tier/tier.h"

namespace shale {

struct CacheOptions {
  std::string planner = "shale";
  PlannerOptions planner_options;
  double alpha = 1.0;                // seconds of waiting that one unit of quality is worth
  double frequency_half_life_s = 600;
  // What the planner may choose from, besides `full`.
  std::vector<std::string> methods = {"knorm", "keydiff", "snapkv", "int8", "kivi4", "keydiff+int8", "snapkv+kivi4"};
  ScorerOptions scorers;
  std::uint32_t entry_tokens_min = 16;  // shorter segments are not stored
  bool keep_base = true;                // the uncompressed copy on the lowest tier
};

// What a request accepts.
struct Demand {
  bool exact = false;            // only bit-exact KV
  std::optional<Method> method;  // only this configuration (and exact KV from the pool is not used in its place)
  double keep = 1.0;
  bool operator==(const Demand&) const = default;
};

struct CacheStats {
  std::uint64_t lookups = 0, hits = 0;
  std::uint64_t tokens_pool = 0, tokens_memory = 0, tokens_disk = 0, tokens_remote = 0, tokens_computed = 0;
  std::uint64_t corrupt_objects = 0;   // dropped after a failed checksum or parse; never served
  std::uint64_t failed_reads = 0, failed_writes = 0, refused_full = 0;
  std::uint64_t encoded_bytes = 0, moves = 0, presses = 0, drops = 0;
};

class Cache {
 public:
  // Scans the tiers for objects of this fingerprint. Objects that do not parse are counted and removed (kept where the
  // tier is read-only); those of other models are left alone.
  static Result<std::unique_ptr<Cache>> open(CacheOptions options, Fingerprint fingerprint, PagePool& pool,
                                             std::vector<std::unique_ptr<Tier>> tiers,
                                             std::unique_ptr<Catalogue> catalogue, const Clock& clock);
  ~Cache();

  const Fingerprint& fingerprint() const;
  PagePool& pool();
  std::span<const std::unique_ptr<Tier>> tiers() const;
  Catalogue* catalogue();
  CostModel& costs();
  EntryIndex& index();
  const CacheOptions& options() const;
  CacheStats stats() const;

  // Fills the empty `sequence` with the longest prefix of `tokens` that is cheaper to fetch than to compute, and starts
  // reading. Never takes the whole of `tokens`: at least the last one is left to compute. Counts as an access of every
  // entry used. Always succeeds; finding nothing is an empty retrieval.
  Retrieval retrieve(std::span<const std::int32_t> tokens, const Demand& demand, Sequence& sequence);
  // The engine reports what broke (Retrieval::failure); the object is removed and counted.
  void report_failure(const Retrieval& retrieval);

  // The exact pages of a sequence become available to later requests (prefix tree).
  void remember(std::span<const std::int32_t> tokens, const Sequence& sequence);
  // Frees pool slabs by evicting from the prefix tree; false when it cannot.
  bool make_room(std::uint32_t slabs);

  // Queues the entry tokens [first, end) of an exact sequence for storing; pages stay pinned until encoded. `parent`
  // is the key of the entry that ends at `first`. Queries are those of the entry's last tokens, [layers][query_heads]
  // [window][head_dim]; empty when none were captured. Does nothing for known or too short entries.
  struct NewEntry {
    EntryKey parent;
    std::uint32_t first_position = 0;
    std::vector<std::int32_t> tokens;
    std::vector<float> queries;
    std::uint32_t query_heads = 0, window = 0;
    double recompute_s = 0;  // what computing it just cost
    std::string label;       // for people: a file name, the first words
    std::optional<Demand> placed_as;  // a configuration that the request forced
  };
  EntryKey store(NewEntry entry, const Sequence& sequence);

  // Compresses now what `store` would later: encodes tokens [first, …) of `from` by the method and decodes them at
  // `keep` into `into` (which must end at `first`). For requests that name a method, and for profiling.
  struct CompressedCopy {
    std::shared_ptr<const ObjectEncoder::Encoded> object;
  };
  Result<CompressedCopy> compress(const NewEntry& entry, const Method& method, const Sequence& from, Executor& executor);
  Status decompress(const CompressedCopy& copy, double keep, Sequence& into, Executor& executor);

  // The planner's turn: builds the problem from measurements, asks for relief or promotion, queues the moves.
  Plan plan_relief();
  Plan plan_promotion();
  // Everything the planner would see now.
  Problem problem() const;
  std::vector<Method> candidate_methods() const;

  // Does one bounded piece (about a millisecond) of queued work; false when there is nothing to do now.
  bool work(Executor& executor);
  // Works until the queue is empty and all writes are done.
  void drain(Executor& executor);
  bool idle() const;

  // Removes an entry and everything stored of it. kNotFound; kBusy while it is being read.
  Status remove(const EntryKey& key);
  // Reads every stored object back and checks it; returns what is wrong (already removed unless read-only).
  struct Fault {
    std::string tier, what;
    EntryKey key;
  };
  std::vector<Fault> verify(const std::function<void(std::size_t done, std::size_t total)>& progress);

  Status check_integrity() const;

 private:
  struct State;
  explicit Cache(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace shale
