// Loading under way: Cache::retrieve starts the reads; what has come is decoded piece by piece, layers in the order in
// which attention needs them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/cost_model.h"
#include "cache/entry_index.h"
#include "cache/job.h"
#include "codec/object.h"
#include "core/clock.h"
#include "core/executor.h"
#include "tier/tier.h"

namespace shale {

// Where one stretch of the prefix came from.
struct SourceUsed {
  std::string where;  // kPoolSource, or the tier's name
  Method method = Method::full();
  double keep = 1;
  std::uint32_t tokens = 0;  // logical
  std::uint64_t bytes = 0;   // read
  EntryKey key;              // zero for the pool
};

// How long after asking a tier for what should take `expected_s` a request waits for it.
constexpr double late_after_s(double expected_s) { return 0.5 + 4 * expected_s; }

// What was observed of a stored entry, on its way from a tier. Must not outlive its cache.
class StoredObservations {
 public:
  // Whether there is nothing to wait for: it came, it is late, or there is none.
  bool ready() const { return !read_ || read_->ready() || clock_->now_s() - begun_s_ > late_after_s(0); }
  // What has come; empty where nothing has, or it is damaged, which is counted. Once.
  Observations take();
  // The same after waiting for it.
  Observations wait();

 private:
  friend class Cache;

  std::shared_ptr<TierRead> read_;  // null: there is nothing to read
  std::shared_ptr<const Manifest> manifest_;
  CacheStats* stats_ = nullptr;
  const Clock* clock_ = nullptr;
  double begun_s_ = 0;
};

// Movable; entries stay pinned while it lives. Dropping it leaves reads to end by themselves: nothing is written to the
// sequence any more. Not thread-safe.
class Retrieval {
 public:
  std::uint32_t tokens() const { return tokens_; }  // logical tokens that need not be computed
  bool lossy() const { return lossy_; }
  const std::vector<SourceUsed>& sources() const { return sources_; }
  // Whether bytes are still to come, long after they should have: four times the estimate of when it began, which
  // counts the reads ahead of it, and half a second. Who waits had better compute.
  bool late() const;

  // Decodes chunks that have come, on the executor, until `budget_s` have passed (one chunk at least) or none is left.
  // Never waits. True when it decoded anything. On an error the sequence must be dropped and the failure reported
  // (Cache::report_failure).
  Result<bool> poll(Executor& executor, double budget_s);
  // Whether every page of `layer` is in place.
  bool layer_loaded(std::uint32_t layer) const;
  bool loaded() const;

  // For callers that have nothing else to do: waits for what is missing, then decodes it. Errors as of `poll`.
  Status ensure_all(Executor& executor);

  // The object that could not be read.
  struct Failure {
    EntryKey key;
    Hash128 object;
    std::uint32_t tier = 0;
    Error error;
  };
  const std::optional<Failure>& failure() const { return failure_; }

 private:
  friend class Cache;

  struct Load {
    EntryPin pin;
    StoredObject object;
    Method method;  // that it is read as
    ObjectDecoder decoder;
    std::vector<std::shared_ptr<TierRead>> reads;  // as the manifest's chunks; null for what is not wanted or decoded
    std::vector<std::uint32_t> missing = {};       // chunks not yet decoded, per layer group
  };
  Result<bool> decode_some(Executor& executor, double budget_s, bool wait);
  Status decode(Load& load, std::uint32_t chunk, Executor& executor);

  std::uint32_t tokens_ = 0;
  bool lossy_ = false;
  double begun_s_ = 0;
  double expected_s_ = 0;  // from then to the last byte
  std::vector<SourceUsed> sources_;
  std::vector<Load> loads_;
  CostModel* costs_ = nullptr;
  const Clock* clock_ = nullptr;
  std::optional<Failure> failure_;
};

}  // namespace shale
