// KV at rest: blocks of many requests in tiers, found by key, loaded into and saved from the memory of any engine.
//
//   auto store = Store::open(options, std::move(tiers), clock);
//   StoreLookup found = store->lookup(keys);              // one key a block (block_keys.h)
//   auto load = store->load(keys, view);                   // writes found.blocks blocks, layer by layer
//   load->wait_layer(0);                                   // or poll() from a loop
//   auto save = store->save(keys, view);                   // blocks that are there already are not stored again
//
//   Store ── owns ──> ExtentIndex    which blocks, on which tiers; in memory
//                ──> StoreTier …     bytes, fast to slow; a folder beside a tier holds its index, leases and election
//                ──> Staging         bound on bytes that are read or encoded and not yet where they belong
//                ──> placement       which variant of what lies where (store_placement.h)
//                ──> threads         encode, write, move, ask shared tiers; none where the owner calls work()
//
// The store knows no pool, no sequence and no model. It names *blocks* by the caller's keys, shares *chunks* (256
// tokens by default) between all chains that begin alike, and reads, writes, moves and forgets *extents*: up to 16
// chunks that were saved together.
//
// Thread-safe, all of it, and nothing blocks unless its name says so. A view is read only until StoreSave::released(),
// and written only inside StoreLoad's poll() and wait…(). Everything handed in by reference must outlive the store;
// every handle must be gone before it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/method.h"
#include "codec/views/kv_view.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/hash.h"
#include "extents/block_keys.h"
#include "extents/store_hints.h"
#include "extents/store_needs.h"
#include "extents/store_options.h"
#include "extents/store_placement.h"
#include "extents/store_report.h"
#include "extents/store_tiers.h"
#include "tier/tier.h"

namespace shale {

class StoreCore;

// Blocks on their way into a view. One thread may use it at a time; dropping it cancels.
class StoreLoad {
 public:
  struct State;
  ~StoreLoad();

  // Leading blocks from `first_block` that were found when it was asked for. failures() has those that fail.
  std::uint32_t blocks() const;
  // Of these, leading ones whose chunk begins before the view: they are not brought, and their memory stays untouched.
  std::uint32_t skipped() const;
  // Decodes what has arrived into the view, over `executor`. True when nothing more will come.
  bool poll(Executor& executor);
  bool poll();  // on this thread
  // Likewise for about `budget_s`, one read at a time; at least one that has arrived is decoded.
  bool poll(Executor& executor, double budget_s);
  // Whether all manifests are known: from then on runs() says how many rows each head gets, before any byte is written.
  bool planned();
  // Whether layers [0, layer] of all blocks that did not fail are in the view.
  bool layer_ready(std::uint32_t layer) const;
  // Poll until then, asleep between arrivals. kCancelled after cancel().
  Status wait_layer(std::uint32_t layer);
  // Waits until nothing more will come. An error only where no block came at all, the first of failures().
  Status wait();
  // The view is the caller's again at once. Reads in flight end unseen.
  void cancel();

  // Tiers that were asked for bytes which have not arrived, a bit each.
  std::uint32_t owing() const;
  // Bytes at rest that came and were decoded, or found damaged, so far.
  std::uint64_t decoded_bytes() const;
  bool done() const;
  // Valid once done.
  const std::vector<StoreFailure>& failures() const;
  // Valid once planned; once done, without those of which nothing came.
  const std::vector<StoreRun>& runs() const;
  // Zero while all that was loaded is exact; else what KV computed on top is to be saved under (lineage_keys).
  Hash128 lineage() const;

 private:
  friend class Store;
  explicit StoreLoad(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// Blocks on their way into tiers. One thread may use it at a time. Dropping it cancels what has not been encoded.
class StoreSave {
 public:
  struct State;
  ~StoreSave();

  // True once the view is not read any more, for whatever reason.
  bool released() const;
  // True once all blocks can be found, or an error is known. Lower tiers may still be written.
  bool done() const;
  // Blocks until then; without threads of the store's own, by doing the work.
  Status wait_released();
  // The first error: kFull where no tier has room, or what is there is worth more; kIo; kCancelled.
  Status wait();
  // Blocks until the view is not being read, a millisecond; what is not yet encoded will not be stored.
  void cancel();

  // Blocks of the view that were there already and are not stored again.
  std::uint32_t shared_blocks() const;

 private:
  friend class Store;
  explicit StoreSave(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

class Store {
 public:
  // `tiers` fast to slow, one to eight, at least one that keeps or shares. Reads the index of every folder: its
  // snapshot and logs, or, where those are damaged or missing, the manifests themselves. kInvalidArgument, kIo;
  // kBusy where a program of another format holds a folder.
  static Result<std::unique_ptr<Store>> open(StoreOptions options, std::vector<StoreTier> tiers, const Clock& clock);
  // Ends the threads, drops what is not yet encoded, finishes writes in flight and flushes logs.
  ~Store();

  // Starts asking shared tiers for what is unknown, unless the planner stores nothing. `counts`: towards the tenant's
  // look-ups.
  StoreLookup lookup(std::span<const BlockKey> keys, const StoreNeeds& needs = {}, std::string_view tenant = {},
                     bool counts = true);
  // Starts asking shared tiers for what is unknown, as lookup() does, and counts nothing. Whether they are being asked.
  bool discover(std::span<const BlockKey> keys, std::string_view tenant = {});
  // The view must stay until the load is done or cancelled, and holds at least the blocks that it may bring:
  // keys.size() less first_block. Finding nothing is a load of no blocks. kInvalidArgument where the view's geometry is
  // not the store's.
  Result<std::unique_ptr<StoreLoad>> load(std::span<const BlockKey> keys, const MutableKvView& view,
                                          const StoreLoadOptions& options = {});
  // Stores those blocks of the view that are not there yet. The view must stay until released(). kFull at once where
  // the planner stores nothing.
  Result<std::unique_ptr<StoreSave>> save(std::span<const BlockKey> keys, const KvView& view, StoreHints hints = {});

  // All of these are about the extents that hold the leading blocks of `keys` that are there; they return how many
  // blocks that is.
  std::uint32_t touch(std::span<const BlockKey> keys, std::string_view tenant = {});  // counts as a use
  // Pinned extents are neither demoted out of the store nor expired until this process has unpinned them as often, or
  // ends. Others may take up to a minute to see that.
  std::uint32_t pin(std::span<const BlockKey> keys, std::string_view tenant = {});
  std::uint32_t unpin(std::span<const BlockKey> keys, std::string_view tenant = {});
  // Extents whose blocks are all among `keys` are forgotten at once and deleted behind that; pinned ones stay.
  std::uint32_t remove(std::span<const BlockKey> keys, std::string_view tenant = {});
  // Likewise all extents of a run that are not pinned; how many there were. For tests.
  std::uint32_t remove_run(const Hash128& run);

  // Bounds the bytes of a tenant's extents from now on, in all forms and copies, on all tiers but shared ones; 0: no
  // bound, as for tenants that were never named. The tenant's own extents, never another's, are dropped for what is
  // saved beyond the bound: first those with the least uses × computing time per byte, and a run's from its end. An
  // extent that is worth less than these is not stored.
  void set_quota(std::string_view tenant, std::uint64_t bytes_max);

  // More is known of what forms of a run are worth: its extents are placed anew in the next work(), not by and by.
  void place_again(const Hash128& run);
  // Likewise those that hold the leading blocks of `keys`.
  void place_again(std::span<const BlockKey> keys, std::string_view tenant = {});

  // The owner's own memory holds the leading `blocks` of the chain, and answers for them before the store does: they
  // are worth less on a tier; better forms may rise beside `lossy` ones. Said anew when that changes; how many blocks
  // of the chain the store knows.
  std::uint32_t in_pool(std::span<const BlockKey> keys, std::uint32_t blocks, PoolNews news,
                        std::string_view tenant = {}, bool lossy = false);

  // The owner is about to write blobs of its own, which take `bytes` there (Tier::stored_bytes), under a name that
  // nobody else has, on one of the store's tiers; has written them, or could not; and needs them no more: they are
  // removed behind the calls. In a folder they count as used until then, and where this process dies first, another one
  // removes them. False: there is no room, and nothing has begun.
  [[nodiscard]] bool begin_own(std::uint32_t tier, const Hash128& object, std::uint64_t bytes);
  void written_own(std::uint32_t tier, const Hash128& object);
  void end_own(std::uint32_t tier, const Hash128& object);

  // What lies in the store along a chain: every variant of every extent whose blocks are all among the keys, those that
  // begin first before others, but for those whose first chunk is damaged.
  std::vector<StoreExtent> inspect(std::span<const BlockKey> keys, std::string_view tenant = {}) const;
  // Everything that the store knows of, of all tenants and namespaces, as it was when this was called. `visit` may call
  // the store. For tests.
  void for_each_extent(const std::function<void(const StoreExtent&)>& visit) const;
  // Reads one extent where it lies and verifies every byte of it. Blocks. The first error: kNotFound where it is not
  // there (any more), kCorrupt, kIo. Nothing is removed.
  Status verify(const Hash128& extent, std::uint32_t tier);

  StoreStats stats() const;
  // Takes at most `max` events, oldest first. They are of this store's own doing: others tell of theirs.
  std::vector<StoreEvent> take_events(std::size_t max);
  // Readable (an eventfd, never blocking) after anything has arrived or ended for any handle, or an event waits.
  // Reading it resets it. The store's; -1 where the system refuses one.
  int event_fd() const;

  // Encodes, writes, moves and asks for about `budget_s`, for owners without threads. False when there is nothing to do
  // now. One caller at a time.
  bool work(Executor& executor, double budget_s);
  // Whether anything is still to be saved, or may be.
  bool saves_any() const;
  // Whether nothing is queued, being moved or being written.
  bool idle() const;
  // Blocks until everything that was saved lies where it belongs and nothing is being moved.
  Status flush();
  // Every cached prefix of the placement and what it may become, as planners see it at once, now.
  Problem problem() const;

  // Index, tiers and folders agree, when idle. Blocks.
  Status check_integrity();

 private:
  explicit Store(std::unique_ptr<StoreCore> core);
  std::unique_ptr<StoreCore> core_;
};

}  // namespace shale
