// Background work of the cache: encoding, writing, moving. A job advances in bounded pieces on the engine's own
// threads, between decode steps and when idle; its I/O runs meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/cached_tokens.h"
#include "cache/entry_index.h"
#include "cache/stored.h"
#include "core/executor.h"
#include "paging/sequence.h"

namespace shale {

struct CacheStats {
  std::uint64_t lookups = 0, hits = 0;
  CachedTokens cached = {};
  std::uint64_t corrupt_objects = 0;       // found damaged, never served, removed where that was possible
  std::uint64_t stuck_objects = 0;         // of those and of abandoned ones: could not be removed
  std::uint64_t corrupt_observations = 0;  // the entry cannot be ranked by scorers that read them; nothing else is lost
  std::uint64_t failed_reads = 0, failed_writes = 0, refused_full = 0;
  std::uint64_t encoded_bytes = 0, copies = 0, presses = 0, drops = 0;
  std::uint64_t late_loads = 0;   // that a request gave up waiting for
  std::uint64_t given_up = 0;     // entries that were to be stored, and made room for requests instead
  double background_seconds = 0;  // encoding, writing and moving, as the engine's thread took part in it
  double planning_seconds = 0;
};

// What jobs work on; owned by the cache, which outlives its jobs.
struct JobContext {
  PagePool& pool;
  std::span<const std::unique_ptr<Tier>> tiers;
  const Fingerprint& fingerprint;
  const ScorerOptions& scorers;
  const ModelTraits& model;
  const CachegenTables* tables;
  CacheStats& stats;
};

// A copy to make: strata for `keep` of the method's object, on one tier.
struct CopyTarget {
  Method method;
  double keep = 1;
  std::uint32_t tier = 0;
};

// A copy to give up: its strata from `strata` on, 0: all of it; and what refines the bits beyond `bits`.
struct CopyCut {
  Method method;
  std::uint32_t tier = 0;
  std::uint32_t strata = 0;
  Bits bits = Bits::kAll;
};

// What was observed of the entry of an uncompressed object, from the blob beside it. Nothing where the blob is absent,
// of another version or, which is counted, damaged.
Observations read_observations(const Result<BlobBytes>& blob, const Manifest& manifest, CacheStats& stats);

class Job {
 public:
  enum class Progress { kWorked, kWaiting, kDeferred, kDone };

  virtual ~Job() = default;
  // One piece: about a millisecond of work a thread, never waiting for I/O. kDeferred, at most once: the other jobs
  // come first.
  virtual Progress step(Executor& executor) = 0;
  // What can be done before the job's turn comes, in pieces likewise; false when there is nothing, or no more.
  virtual bool prepare(Executor&) { return false; }
  // Whether there is: meanwhile the job keeps pages of the pool.
  virtual bool unprepared() const { return false; }
  // What its preparation made, held until it is written.
  virtual std::uint64_t prepared_bytes() const { return 0; }
  // Whether the job could be dropped for the pages that it keeps, without loss of what is stored; how many slabs would
  // then be free, or the prefix tree's to evict.
  virtual bool can_be_given_up() const { return false; }
  virtual std::uint32_t slabs_kept() const { return 0; }
  // Whether jobs behind it must wait for room that it will free on a tier.
  virtual bool frees_room() const { return false; }
  Entry& entry() const { return *pin_.entry(); }

 protected:
  Job(JobContext& context, Entry& entry) : context_(context), pin_(entry) {}

  JobContext& context_;

 private:
  EntryPin pin_;
};

// Encodes an entry from exact pages and writes the targets; `held` keeps the pages until then. The entry's first token
// is token `first` of `held`.
std::unique_ptr<Job> make_store_job(JobContext& context, Entry& entry, Sequence held, std::uint32_t first,
                                    Observations observations, std::vector<CopyTarget> targets);

// Makes one more copy of an entry from a stored one: as it is where an object of the method with enough strata exists,
// else by encoding anew from the uncompressed copy. Then gives up `cuts`, which are kept when the copy fails.
std::unique_ptr<Job> make_copy_job(JobContext& context, Entry& entry, CopyTarget target, std::vector<CopyCut> cuts);

// Keeps what was observed of an entry beside its uncompressed copies, where these lack any of it.
std::unique_ptr<Job> make_observe_job(JobContext& context, Entry& entry, Observations observations);

// Presses or drops copies.
std::unique_ptr<Job> make_cut_job(JobContext& context, Entry& entry, std::vector<CopyCut> cuts);

}  // namespace shale
