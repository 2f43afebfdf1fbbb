// The inside of a store: what its calls, its handles and its work share. One mutex guards everything but I/O, codecs
// and views; nothing that may block is done while it is held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codec/extent.h"
#include "store/demotion_order.h"
#include "store/event_queue.h"
#include "store/extent_index.h"
#include "store/extent_io.h"
#include "store/index_folder.h"
#include "store/manifest_cache.h"
#include "store/staging.h"
#include "store/store.h"

namespace shale {

// Work behind the calls: saves, moves, removals, questions to shared tiers. One thread at a time steps it.
class StoreJob {
 public:
  virtual ~StoreJob() = default;
  enum class Progress { kWorked, kWaiting, kDone };
  // A bounded piece, about a millisecond, but for system calls on local files.
  virtual Progress step(Executor& executor) = 0;
};

// A load under way, as the store's threads see it.
class LoadPump {
 public:
  virtual ~LoadPump() = default;
  // Starts reads that there is room for; true when anything has arrived since it was last asked. Never waits.
  virtual bool pump() = 0;
};

struct TierState {
  TierState(StoreTier with, DemotionOrder by) : config(std::move(with)), order(std::move(by)) {}

  StoreTier config;
  std::unique_ptr<IndexFolder> folder;  // null where there is none; guarded by folder_mutex
  std::unique_ptr<std::mutex> folder_mutex = std::make_unique<std::mutex>();  // taken before the core's

  // Guarded by the core's mutex:

  DemotionOrder order;
  bool leads = false;  // of those that share the folder
  std::vector<IndexRecord> unlogged = {};
  std::unordered_map<Hash128, std::uint64_t> others_writing = {};  // bytes
  std::unordered_set<Hash128> removing = {};  // by anybody: not to be written before that has ended
  std::uint64_t known_bytes = 0;              // of the extents that the index has here
  std::uint64_t leaving_bytes = 0;            // of extents that are being moved or removed
  std::uint64_t asked_bytes = 0;              // of reads under way
  unsigned changes = 0;                       // writes and removals of this store's under way
  StoreTierStats counts = {};

  Tier& tier() const { return *config.tier; }
  // Whether nobody else puts anything here.
  bool is_private() const { return !folder && !config.shared; }
};

inline constexpr std::uint16_t kNoRealm = 0xffff;  // there are too many tenants

// In which a tenant's blocks are named.
Hash128 realm_of(const StoreOptions& options, std::string_view tenant);

struct TenantState {
  Hash128 realm;
  std::uint16_t number = 0;  // in the index
  StoreTenantStats counts = {};
};

class StoreCore {
 public:
  StoreCore(StoreOptions options, std::vector<StoreTier> tiers, const Clock& clock);
  ~StoreCore();
  Status open();

  double wall_s() const { return options.wall_clock(); }
  std::uint32_t tier_count() const { return static_cast<std::uint32_t>(tiers.size()); }
  std::uint32_t chunk_blocks() const { return options.chunk_tokens / options.geometry.block_tokens; }

  // With the mutex held, all of these.

  TenantState& tenant(std::string_view name);
  // The extent is (not) on the tier any more or now, in this store's eyes; one that is nowhere and unused is forgotten.
  void set_on(ExtentId id, std::uint32_t tier);
  bool recently_asked(std::uint64_t tag) const;  // a shared tier, or it is being asked
  void clear_on(ExtentId id, std::uint32_t tier);
  void use(ExtentId id) { ++index.at(id).uses; }
  void unuse(ExtentId id);
  void access(ExtentId id, double share);
  void add_job(std::shared_ptr<StoreJob> job);
  // Has a job remove it there: it is not found any more from now on.
  void remove_from(ExtentId id, std::uint32_t tier);
  // For the folder's log, if the tier has one: written by flush_log, or before long.
  void log(std::uint32_t tier, IndexRecord record);
  // Room for `bytes` more on a tier: lets what is worth least go, or begin to go. True where there is room now.
  bool make_room(std::uint32_t tier, std::uint64_t bytes);
  bool has_room(std::uint32_t tier, std::uint64_t bytes) const;
  void pin(ExtentId id, bool on);

  // Without it.

  // What a load found wrong: kNotFound (the extent is gone there), kCorrupt (of those chunks).
  void report(const Hash128& extent, std::uint32_t tier, const Error& error, std::uint32_t chunks_failed);
  void flush_log(std::uint32_t tier);
  void follow_folder(std::uint32_t tier);  // what others did
  void signal();                           // events or arrivals
  void add_load(LoadPump& load);
  void remove_load(LoadPump& load);
  bool work(Executor& executor, double budget_s);
  bool idle() const;

  const StoreOptions options;
  const Clock& clock;
  NamespaceHash name_space = {};
  Staging staging;
  ManifestCache manifests;
  EventQueue events;

  mutable std::mutex mutex;  // guards what follows
  std::vector<TierState> tiers;
  ExtentIndex index;
  std::map<std::string, TenantState, std::less<>> tenants;
  std::unordered_set<std::uint64_t> saving;  // tags of chunks that are being saved
  // When a shared tier was last asked for a chunk, and what is being asked now.
  std::unordered_map<std::uint64_t, double> asked;
  std::unordered_set<std::uint64_t> asking;
  std::deque<std::shared_ptr<StoreJob>> jobs;
  std::unordered_set<ExtentId> pinned;  // by this store's callers
  // When extents expire, the first first; those that were given longer, or are gone, are found so when their time
  // comes.
  std::priority_queue<std::pair<double, Hash128>, std::vector<std::pair<double, Hash128>>, std::greater<>> expiries;
  StoreStats counts = {};

 private:
  void run();
  bool step_jobs(Executor& executor, double until_s);
  bool pump_loads();
  void maintain();
  void forget_unused(ExtentId id);
  // store_room.cc
  void demote(std::uint32_t tier, ExtentId id);
  void expire();
  void renew_leases();
  void forget_asked();
  void tidy_orders();
  // store_folder.cc
  Status open_folder(std::uint32_t tier);
  Status rebuild(std::uint32_t tier);
  void apply(std::uint32_t tier, const IndexRecord& record, bool opening);
  void apply_stored(std::uint32_t tier, const IndexRecord& record, bool opening);
  void maintain_folder(std::uint32_t tier);
  void settle(std::uint32_t tier, const IndexFolder::Unfinished& unfinished);
  void look(std::uint32_t tier, const Hash128& name, std::uint64_t tag);
  void adopt(std::uint32_t tier, const Hash128& name, std::uint64_t tag);
  Status write_snapshot(std::uint32_t tier);
  void close_folders();

  std::condition_variable wake_;
  unsigned jobs_out_ = 0;  // being stepped
  double next_maintenance_s_ = 0, next_expiry_s_ = 0, next_renewal_s_ = 0;
  std::mutex loads_mutex_;  // taken before the core's; guards loads_
  std::vector<LoadPump*> loads_;
  std::atomic<std::size_t> load_count_ = 0;
  bool maintaining_ = false;
  bool closing_ = false;
  std::vector<std::jthread> threads_;
};

// The jobs there are. Each has been given what it needs and holds `use`s of its extents.
// Removes blobs of an extent that the index has forgotten there.
std::shared_ptr<StoreJob> make_remove_job(StoreCore& core, std::uint32_t tier, const Extent& extent);
std::shared_ptr<StoreJob> make_move_job(StoreCore& core, ExtentId id, std::uint32_t from, std::uint32_t to);
// Asks shared tiers what begins with keys[first_block], and goes on where that ends.
std::shared_ptr<StoreJob> make_discover_job(StoreCore& core, std::vector<BlockKey> keys, std::uint32_t first_block,
                                            const Hash128& realm, std::uint16_t realm_number);

}  // namespace shale
