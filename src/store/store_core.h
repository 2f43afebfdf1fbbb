// The inside of a store: what its calls, its handles and its work share. One mutex guards everything but I/O, codecs
// and views; nothing that may block is done while it is held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codec/extent.h"
#include "core/buffer_pool.h"
#include "extents/asked_chunks.h"
#include "extents/event_queue.h"
#include "extents/extent_index.h"
#include "extents/extent_io.h"
#include "extents/index_folder.h"
#include "extents/manifest_cache.h"
#include "extents/staging.h"
#include "extents/tenant_state.h"
#include "extents/tier_state.h"
#include "io/io_threads.h"
#include "store/extent_placer.h"
#include "store/store.h"

namespace shale {

// Work behind the calls: saves, moves, removals, questions to shared tiers. One thread at a time steps it.
class StoreJob {
 public:
  virtual ~StoreJob() = default;
  enum class Progress { kWorked, kWaiting, kDone };
  // A bounded piece, about a millisecond.
  virtual Progress step(Executor& executor) = 0;
  // The tier that step() may wait for; nothing where it waits for none.
  virtual std::optional<std::uint32_t> waits_on() const { return std::nullopt; }
};

// A load in flight, as the store's threads see it.
class LoadPump {
 public:
  virtual ~LoadPump() = default;
  // Starts reads that there is room for; true when anything has arrived since it was last asked. Never waits.
  virtual bool pump() = 0;
};

inline constexpr std::uint16_t kNoRealm = 0xffff;  // there are too many tenants
inline constexpr double kPatienceS = 3;            // for room on a tier, and for those who read what is to go
inline constexpr unsigned kRefusalsMax = 4;        // of a write for which there was room before others took it
inline constexpr double kLeaseS = 60;              // a pin of a process that dies lapses
inline constexpr double kFindAgainAfterS = 10;     // what could not be read
inline constexpr ErrorCode kNoMemory = ErrorCode::kInternal;  // says nothing of an extent (report()), nor of a tier

class StoreCore {
 public:
  StoreCore(StoreOptions options, std::vector<StoreTier> tiers, const Clock& clock);
  ~StoreCore();
  Status open();

  double wall_s() const { return options.wall_clock(); }
  std::uint32_t tier_count() const { return static_cast<std::uint32_t>(tiers.size()); }
  std::uint32_t chunk_blocks() const { return options.chunk_tokens / options.geometry.block_tokens; }

  // All of these need the mutex held.

  TenantState& tenant(std::string_view name);
  std::uint64_t bytes_of(const TenantState& tenant) const;
  void count_bytes(const Extent& extent, std::uint32_t tier, std::uint64_t more);  // modulo 2^64: or fewer
  // The extent is (not) on the tier any more or now, in this store's eyes; one that is nowhere and unused is forgotten.
  void set_on(ExtentId id, std::uint32_t tier);
  void clear_on(ExtentId id, std::uint32_t tier);
  void use(ExtentId id) { ++index.at(id).uses; }
  void unuse(ExtentId id);
  void access(ExtentId id, double share);
  SpanFilter filter(const StoreNeeds& needs);
  const Method& method_of(const Extent& extent);
  double load_s(const Method& method, std::uint64_t bytes, std::uint32_t tier) const;  // behind nothing else
  // The keep that a request with these needs reads of the extent.
  float keep_read(const Extent& extent, const StoreNeeds& needs);
  std::uint64_t bytes_read(const Extent& extent, std::uint32_t blocks, float keep) const;  // about
  StoreLookup describe(const std::vector<ChainSpan>& spans, const StoreNeeds& needs);
  StoreExtent describe(const Extent& extent);
  void add_job(std::shared_ptr<StoreJob> job);
  // The tier whose threads do what may wait for this one; none where nothing does.
  std::optional<std::uint32_t> keeper_of(std::uint32_t tier) const {
    return tiers[tier].tier().persistent() ? std::optional(tier) : std::nullopt;
  }
  void add_save(std::shared_ptr<StoreJob> job);
  // Has a job remove it there; where the tier fails, it is tried again. It is not found any more from now on.
  void remove_from(ExtentId id, std::uint32_t tier);
  void remove(std::uint32_t tier, Removal removal);  // of what the index has forgotten there, or of the owner's own
  void remove_owed(std::uint32_t tier);              // where one is due
  void remove_everywhere(ExtentId id);
  // Tells the folder's log, where the tier has one, that what was being written or removed there is no more.
  void log_settled(std::uint32_t tier, const BlobOwner& owner);
  // Writing an extent's blobs there may begin, and has been logged: not while they are being written or removed.
  // Whoever began ends it: says whether all blobs are there now, else what is left of them, which goes first.
  bool begin_write(std::uint32_t tier, const BlobOwner& owner, std::uint64_t bytes);
  // Once the log has it. Without the mutex. Null, and it has ended, where the tier's folder cannot be opened after all.
  std::unique_ptr<ExtentWriter> go_on_writing(std::uint32_t tier, std::shared_ptr<const ExtentBlobs> blobs);
  void end_write(std::uint32_t tier, const BlobOwner& owner, bool written, std::vector<BlobId> left);
  // Adds to the folder's log, if the tier has one: written by flush_log, or before long.
  void log(std::uint32_t tier, IndexRecord record);
  // It has other importance tiers now.
  void resize(ExtentId id, float keep, std::uint64_t bytes);
  // Before a copy with these facts counts as one of the extent's.
  void hold_no_more(ExtentId id, const ExtentFacts& facts);
  void set_expiry(Extent& extent, double expires_s);
  // It is saved again, with this time to live.
  void live_on(ExtentId id, double expires_s);
  IndexRecord record_of(ExtentId id) const;  // that it is stored, as others may read it
  void log_stored(ExtentId id, std::uint32_t tier);
  void log_where(const Extent& extent, const IndexRecord& record);  // on every tier where it lies
  IndexRecord lease_of(const Extent& extent) const;                 // of this store's pins, as others may read it
  void log_lease(const Extent& extent);
  // An event of its blocks, where anybody takes events.
  void tell(StoreEvent::Kind kind, std::uint32_t tier, std::string tenant, const ExtentManifest& manifest);
  bool has_room(std::uint32_t tier, std::uint64_t bytes) { return tiers[tier].has_room(bytes); }
  // Extents that could not be read are found again, where their time has come by then.
  void find_unread(std::uint32_t tier, double until_s = std::numeric_limits<double>::infinity());
  void pin(ExtentId id, bool on);

  // These are called without it.

  // Reports what a load or a move found wrong with an extent that it uses and found there in that version: kNotFound
  // (gone), kIo (it cannot be read now), kCorrupt (of those chunks, by bit), kMismatch (likewise: undecodable here).
  void report(ExtentId id, std::uint8_t version, std::uint32_t tier, ErrorCode code, std::uint32_t chunks_failed);
  void flush_log(std::uint32_t tier);
  // Likewise, by the keeper where there is one; how many records there are now, which are flushed when flushed() says.
  std::uint64_t flush_soon(std::uint32_t tier);
  bool flushed(std::uint32_t tier, std::uint64_t records) const;
  void follow(std::uint32_t tier);    // what others did there
  void signal() { events.signal(); }  // events or arrivals
  // A load counts as in flight from before its extents are chosen: what it touches does not rise at once. It is pumped
  // from when it is added.
  void begin_load() { ++load_count_; }
  void add_load(LoadPump& load);
  void remove_load(LoadPump& load);
  std::size_t loads_in_flight() const { return load_count_; }
  bool work(Executor& executor, double budget_s);
  bool saves_any() const {
    const std::lock_guard lock(mutex);
    return !saves.empty() || jobs_out_ > 0;  // one of those may be a save
  }
  bool idle() const;
  bool closing() const { return closing_; }

  const StoreOptions options;
  const Clock& clock;
  NamespaceHash name_space = {};
  Staging staging;
  const std::shared_ptr<BufferPool> buffers;  // what extents are encoded into
  ManifestCache manifests;
  EventQueue events;

  mutable std::mutex mutex;  // guards what follows
  std::vector<TierState> tiers;
  ExtentIndex index;
  std::map<std::string, TenantState, std::less<>> tenants;
  std::vector<std::uint64_t> realm_bytes;  // by realm: at rest on tiers that are not shared
  // Chunks that are being saved, by SaveJob::Plan::tag: of its first block, whatever follows.
  std::unordered_map<std::uint64_t, std::vector<BlockKey>> saving;
  AskedChunks asked;
  std::deque<std::shared_ptr<StoreJob>> saves, jobs;  // jobs: all others
  std::unordered_set<ExtentId> pinned;                // by this store's callers
  std::uint64_t removals = 0;                         // likewise, of extents
  std::set<std::pair<double, Hash128>> expiries;      // when extents of the index expire, the first first
  StoreStats counts = {};
  ExtentPlacer placer{*this};
  std::atomic<double> encode_seconds = 0;  // guarded by nothing, as the next
  std::atomic<std::uint64_t> encoded_bytes = 0;

 private:
  void run();
  void keep(std::uint32_t tier, bool first);
  bool step_jobs(std::deque<std::shared_ptr<StoreJob>>& queue, Executor& executor, double until_s);
  bool pump_loads();
  void maintain();
  bool settle();
  void forget_unused(ExtentId id);
  void lose_sight(ExtentId id, std::uint32_t tier);
  // store_room.cc
  void expire();
  bool expire(ExtentId id);
  void renew_leases();
  // store_folder.cc
  Status open_folder(std::uint32_t tier);
  Status read_folder(std::uint32_t tier);
  void open_late(std::uint32_t tier);
  void tell_again(std::uint32_t tier);
  Status rebuild(std::uint32_t tier);
  void find_unread_manifests(std::uint32_t tier);
  void apply(std::uint32_t tier, const IndexRecord& record, bool opening);
  void apply_stored(std::uint32_t tier, const IndexRecord& record, bool opening);
  void note_writing(std::uint32_t tier, const Hash128& name, std::uint64_t bytes);
  void forget_writing(std::uint32_t tier, const Hash128& name);
  void remove_uncounted(std::uint32_t tier, const BlobOwner& owner);
  void maintain_folder(std::uint32_t tier);
  bool settle(std::uint32_t tier, const IndexFolder::Unfinished& unfinished);
  void look(std::uint32_t tier, const BlobOwner& owner);
  void adopt(std::uint32_t tier, IndexRecord stored);
  Status write_snapshot(std::uint32_t tier);

  std::deque<Method> methods_;  // by number
  std::condition_variable wake_;
  unsigned jobs_out_ = 0;                                       // being stepped
  std::vector<std::deque<std::shared_ptr<StoreJob>>> errands_;  // by tier: jobs that may wait for it, for its keeper
  double next_maintenance_s_ = 0, next_expiry_s_ = 0, next_renewal_s_ = 0, wall_seen_s_ = 0;
  std::mutex loads_mutex_;  // taken before the core's; guards loads_
  std::vector<LoadPump*> loads_;
  std::atomic<std::size_t> load_count_ = 0;
  std::atomic<bool> closing_ = false;
  bool has_keeper_ = false;
  std::condition_variable keeper_wake_;
  std::vector<std::jthread> threads_;
};

// The jobs there are. Each has been given what it needs and holds `use`s of its extents.
// Tries a removal that has begun.
std::shared_ptr<StoreJob> make_remove_job(StoreCore& core, std::uint32_t tier, Removal removal);
// Asks shared tiers the questions that wait.
std::shared_ptr<StoreJob> make_discover_job(StoreCore& core);

}  // namespace shale
