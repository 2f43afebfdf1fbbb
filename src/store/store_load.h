// A load in flight: manifests, then ranges of blobs in the order of layers, decoded where the caller polls.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "store/store_core.h"

namespace shale {

struct StoreLoad::State final : LoadPump {
  State(StoreCore& core, std::vector<BlockKey> keys, const MutableKvView& view, const StoreLoadOptions& options);
  ~State() override;

  // Plans what to load, with the core's mutex held. Uses the extents until the load ends.
  void plan(const std::vector<ChainSpan>& found, const Hash128& realm, std::string_view tenant);

  bool pump() override;
  bool poll(Executor& executor, double until_s);
  bool planned();
  bool layer_ready(std::uint32_t layer) const;
  void wait_for_any();  // of the reads in flight
  void cancel();
  std::uint32_t owing() const;

  struct Part {  // of the load: consecutive chunks of one extent
    ChainSpan where;
    Hash128 name;
    std::uint64_t tag = 0;
    std::uint32_t tier = 0;
    std::uint8_t version = 0;
    std::uint64_t bytes = 0;  // about, for estimates
    float keep = 1;
    std::uint32_t tokens_after = 0;
    std::shared_ptr<TierRead> manifest_read;
    std::shared_ptr<const ExtentManifest> manifest;
    std::optional<ExtentDecoder> decoder;
    std::vector<std::uint32_t> left_of_group;
    std::uint32_t ranges_left = 0;
    std::optional<Error> error;  // of all of it
  };
  struct Read {
    std::uint32_t part = 0, range = 0;
    std::shared_ptr<TierRead> read;
    Staging::Share share;
    std::uint64_t bytes = 0;
  };

  // Called with `mutex` held.
  Status prepare(Part& part);
  Status check(const Part& part, const ExtentManifest& manifest) const;
  void queue_ranges();
  void issue();
  std::optional<Read> take_ready();

  void decode(Read& read, Executor& executor);
  StoreRun run_of(const Part& part) const;
  void note_runs();
  void finish();
  void release();

  StoreCore& core;
  const std::vector<BlockKey> keys;  // of the chain, as far as it is loaded
  const std::vector<std::int32_t> tokens;
  const MutableKvView view;
  const std::uint32_t first_block;  // the view's, in the chain
  const bool counts;
  const StoreNeeds needs;
  std::string tenant;
  Hash128 realm;
  std::uint32_t blocks = 0, skipped = 0;

  // The caller's thread alone:

  bool done = false, cancelled = false, runs_noted = false;
  std::vector<StoreFailure> failures;
  std::vector<StoreRun> runs;
  Hash128 lineage;
  std::uint64_t decoded_bytes = 0;

  mutable std::mutex mutex;  // guards what follows; taken before the core's
  std::vector<Part> parts;
  std::deque<std::pair<std::uint32_t, std::uint32_t>> queue;  // (part, range), by layers
  std::vector<Read> reads;
  bool queued = false, released = false;
  std::uint64_t reading_bytes = 0;
  std::size_t ready_seen = 0;  // of the reads, when last pumped
};

}  // namespace shale
