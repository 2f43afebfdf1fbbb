// What a store knows of one of its tiers.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "extents/index_folder.h"
#include "extents/index_records.h"
#include "extents/removals.h"
#include "extents/store_report.h"
#include "extents/store_tiers.h"

namespace shale {

struct BegunWrite {
  std::uint64_t tag = 0, bytes = 0;
  bool reserved = false;  // the tier counts its bytes
};

// An extent that a device failed to read and that may be sound: it takes room, and is not found until then.
struct Unread {
  IndexRecord stored;
  double again_s = 0;
};

// An object of the owner's own.
struct OwnObject {
  std::uint64_t bytes = 0;
  bool writing = false;  // a change in flight
};

struct TierState {
  explicit TierState(StoreTier with) : config(std::move(with)), placed_capacity(config.tier->capacity_bytes()) {}

  // The capacity that may be written there: nothing before its folder is open.
  std::uint64_t capacity_bytes() const { return open ? tier().capacity_bytes() : 0; }
  // Why it is not open yet, or last failed; empty where all is well.
  std::string trouble() const {
    const std::optional<Error> own = tier().trouble();
    return own ? own->message : counts.trouble;
  }
  // Why it may have no room for now; empty where it has what it ever will.
  std::string without_room() const {
    std::string why = trouble();
    if (why.empty() && tier().counting()) why = "what lies there is still being counted";
    return why;
  }

  StoreTier config;
  std::unique_ptr<IndexFolder> folder;  // null where there is none, or until it is open; guarded by folder_mutex
  std::unique_ptr<std::mutex> folder_mutex = std::make_unique<std::mutex>();  // taken before the core's
  bool snapshot_wanted = false;              // in place of a damaged one; guarded by folder_mutex, as the next
  std::deque<BlobId> unread_manifests = {};  // the index was made anew without these
  double read_again_s = 0;                   // when they are read next

  // Guarded by the core's mutex:

  bool open = config.folder.empty();  // its folder's index is, if it has one
  double open_again_s = 0;            // when that is tried next
  double count_again_s = 0;           // when it may be, where it is shared and has no folder
  bool found_full = false;            // since it was counted
  bool leads = false;                 // of those that share the folder
  bool has_others = true;             // who may write there, and may drop nothing
  std::vector<IndexRecord> unlogged = {};
  std::uint64_t logged = 0, flushed = 0;                           // records, so far
  std::unordered_map<Hash128, std::uint64_t> others_writing = {};  // bytes
  std::unordered_map<Hash128, OwnObject> own_objects = {};
  std::unordered_map<Hash128, Unread> unread = {};       // where there is a folder
  std::unordered_set<Hash128> removing = {};             // by others: not to be written before that has ended
  Removals removals = {};                                // by this store
  std::unordered_map<Hash128, BegunWrite> writing = {};  // by this store: not to be removed or begun anew meanwhile
  std::vector<BlobOwner> doubtful = {};                  // in the folder; changed by two stores at once, perhaps
  std::unordered_set<Hash128> found_broken = {};         // of these, of which the leader was told
  std::uint64_t known_bytes = 0;                         // of the extents that the index has here
  std::uint64_t uncounted_bytes = 0;                     // that the placement does not know of, when last looked at
  std::uint64_t placed_capacity;                         // as the placement was told
  std::uint64_t asked_bytes = 0;                         // of reads in flight
  unsigned changes = 0;                                  // writes and removals of this store's in flight
  unsigned moves_staged[3] = {};  // that hold a share of what may be on its way: down to it, within it, up to it
  StoreTierStats counts = {};

  Tier& tier() const { return *config.tier; }
  // Whether anybody removes it, so that it is not found though it may be there.
  bool is_removed(const Hash128& name) const { return removing.contains(name) || removals.contains(name); }
  // For so many bytes more. One that is silent has none: whoever wrote there would wait, perhaps for ever.
  bool has_room(std::uint64_t bytes);
  // What a leader keeps free of a tier with others, so that those who may not drop anything find room.
  std::uint64_t headroom_bytes() const;
  std::uint64_t others_bytes() const;  // being written
  // Of all that is there, and that is being written, which takes its room with it where this process dies.
  std::uint64_t promised_bytes() const;
  // In place of what the tier counts: what was counted twice, or not at all, is put right.
  void count_what_is_there() const;
  // Whether nobody else puts anything here.
  bool is_private() const { return config.folder.empty() && !config.shared; }
};

}  // namespace shale
