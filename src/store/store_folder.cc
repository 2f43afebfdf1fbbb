// A tier's folder, shared with other stores: what they did, what the dead left, who leads.
#include <algorithm>

#include "extents/stored_records.h"
#include "store/store_core.h"

namespace shale {
namespace {

using Type = IndexRecord::Type;

constexpr double kOpenAgainAfterS = 5;        // where a folder could not be opened
constexpr std::size_t kExtentsAtOnce = 1000;  // told to a snapshot while the mutex is held

}  // namespace

// As far as it comes; what was learnt before it failed is forgotten again.
Status StoreCore::open_folder(std::uint32_t tier) {
  TierState& state = tiers[tier];
  const std::lock_guard folder_lock(*state.folder_mutex);
  Status opened = state.tier().reachable();
  if (opened) opened = read_folder(tier);
  const std::lock_guard lock(mutex);
  state.counts.trouble = opened ? std::string() : opened.error().message;
  state.open_again_s = clock.now_s() + kOpenAgainAfterS;
  if (opened) return {};
  state.open = state.leads = false;
  state.unlogged.clear();  // nobody waits for what is not written any more
  state.flushed = state.logged;
  state.folder.reset();
  std::vector<ExtentId> known;
  index.for_each([&](ExtentId id, const Extent& extent) {
    if (extent.on(tier)) known.push_back(id);
  });
  for (const ExtentId id : known) clear_on(id, tier);
  return opened;
}

// Without the mutex while it waits for the folder: others may be at work already.
Status StoreCore::read_folder(std::uint32_t tier) {
  TierState& state = tiers[tier];
  const Tier::Call call(state.tier());
  SHALE_ASSIGN(state.folder, IndexFolder::open(state.config.folder, IndexFolder::kLogBytesMax, state.config.sync));
  {
    const std::lock_guard lock(mutex);
    state.open = true;
    state.others_writing.clear();
    state.unread_manifests.clear();
  }
  const bool whole = state.folder->load([&](const IndexRecord& record) {
    const std::lock_guard lock(mutex);
    apply(tier, record, true);
  });
  if (!whole) SHALE_TRY(rebuild(tier));
  if (whole) find_unread_manifests(tier);
  const bool leads = state.folder->lead();
  {
    const std::lock_guard lock(mutex);
    state.leads = leads;
    for (const auto& unfinished : state.folder->unfinished()) {
      if (unfinished.writing) {
        note_writing(tier, unfinished.name, unfinished.bytes);
      } else {
        state.removing.insert(unfinished.name);
      }
    }
    state.count_what_is_there();
  }
  state.snapshot_wanted = !whole && leads;
  return {};
}

// From the manifests themselves. What was known and is not there is forgotten; what cannot be read now is read later.
Status StoreCore::rebuild(std::uint32_t tier) {
  TierState& state = tiers[tier];
  std::unordered_set<Hash128> found;
  SHALE_ASSIGN(const auto unread, for_each_stored(state.tier(), wall_s(), [&](const IndexRecord& record) {
                 found.insert(record.facts.name);
                 const std::lock_guard lock(mutex);
                 apply(tier, record, true);
               }));
  const std::lock_guard lock(mutex);
  std::vector<ExtentId> gone;
  index.for_each([&](ExtentId id, const Extent& extent) {
    if (!extent.on(tier) || found.contains(extent.name)) return;
    if (!std::ranges::binary_search(unread, manifest_blob(extent.names[0], extent.name))) gone.push_back(id);
  });
  for (const ExtentId id : gone) clear_on(id, tier);
  state.unread_manifests = {unread.begin(), unread.end()};
  state.read_again_s = clock.now_s() + kFindAgainAfterS;
  return {};
}

// With the folder's mutex held, or while opening.
void StoreCore::find_unread_manifests(std::uint32_t tier) {
  TierState& state = tiers[tier];
  if (state.unread_manifests.empty() || clock.now_s() < state.read_again_s) return;
  const bool some = read_again(state.tier(), state.unread_manifests, wall_s(), [&](const IndexRecord& stored) {
    if (const std::lock_guard lock(mutex); state.is_removed(stored.facts.name)) return;
    adopt(tier, stored);
  });
  state.read_again_s = some ? 0 : clock.now_s() + kFindAgainAfterS;
}

void StoreCore::apply_stored(std::uint32_t tier, const IndexRecord& record, bool opening) {
  const auto realm = index.realm(record.realm);
  const auto id = realm ? index.add(record.facts, *realm) : std::nullopt;
  if (!id) return;
  Extent& extent = index.at(*id);
  extent.accessed_s = std::min(extent.accessed_s, wall_s());  // by a clock that was ahead, perhaps
  if (extent.tiers == 0 && !extent.exact && !options.placement.believes_others) extent.quality = 0;
  if (extent.on(tier)) {
    const bool elsewhere = (extent.tiers & ~(1u << tier)) != 0;
    if (extent.bytes == record.facts.bytes || (elsewhere && record.facts.keep > extent.keep)) return;
    if (!opening) tiers[tier].tier().count_others(static_cast<std::int64_t>(record.facts.bytes - extent.bytes));
    return resize(*id, record.facts.keep, record.facts.bytes);
  }
  hold_no_more(*id, record.facts);
  if (!opening) tiers[tier].tier().count_others(static_cast<std::int64_t>(extent.bytes));
  set_on(*id, tier);
}

void StoreCore::note_writing(std::uint32_t tier, const Hash128& name, std::uint64_t bytes) {
  const auto id = index.find(name);
  if (id && index.at(*id).on(tier)) return;
  if (!tiers[tier].others_writing.emplace(name, bytes).second) return;
  tiers[tier].tier().count_others(static_cast<std::int64_t>(bytes));
}

void StoreCore::forget_writing(std::uint32_t tier, const Hash128& name) {
  const auto writing = tiers[tier].others_writing.extract(name);
  if (writing) tiers[tier].tier().count_others(-static_cast<std::int64_t>(writing.mapped()));
}

void StoreCore::apply(std::uint32_t tier, const IndexRecord& record, bool opening) {
  TierState& state = tiers[tier];
  const auto id = index.find(record.name);
  switch (record.type) {
    case Type::kStored:
      state.removing.erase(record.facts.name);  // by whoever saved it again before it could be removed
      return apply_stored(tier, record, opening);
    case Type::kWriting:
      if (!opening) note_writing(tier, record.name, record.bytes);
      return;
    case Type::kUnread:
      return state.unread_manifests.push_back({record.name, record.chunk});
    case Type::kSettled:
      if (opening) state.doubtful.push_back({record.name, record.tag});  // whoever would have looked may be dead
      state.removing.erase(record.name);
      return forget_writing(tier, record.name);
    case Type::kRemoved:
      if (!opening) state.removing.insert(record.name);
      if (const auto unread = state.unread.extract(record.name)) {
        state.tier().count_others(-static_cast<std::int64_t>(unread.mapped().stored.facts.bytes));
      }
      break;
    default:
      break;
  }
  if (!id || !index.at(*id).on(tier)) return;
  Extent& extent = index.at(*id);
  switch (record.type) {
    case Type::kRemoved:
      if (!opening) state.tier().count_others(-static_cast<std::int64_t>(extent.bytes));
      return clear_on(*id, tier);
    case Type::kLease:
      // Of several leases the one that ends last counts, but none that a clock ahead of this one has made longer.
      extent.pinned_until_s = std::max(extent.pinned_until_s, std::min(record.until_s, wall_s() + kLeaseS));
      return set_expiry(extent, record.expires_s);
    case Type::kUsed:
      extent.frequency = record.frequency;
      extent.accessed_s = std::min(std::max(extent.accessed_s, record.time_s), wall_s());
      return;
    case Type::kDamaged:
      if (record.chunk < extent.chunks) index.hide_chunk(*id, record.chunk);
      return;
    default:
      return;
  }
}

// Where its folder is not open yet: tries, and not again at once.
void StoreCore::open_late(std::uint32_t tier) {
  {
    const std::lock_guard lock(mutex);
    if (tiers[tier].open || clock.now_s() < tiers[tier].open_again_s) return;
  }
  (void)open_folder(tier);
}

void StoreCore::maintain_folder(std::uint32_t tier) {
  TierState& state = tiers[tier];
  open_late(tier);
  flush_log(tier);
  const std::lock_guard folder_lock(*state.folder_mutex);
  if (!state.folder) return;
  const Tier::Call call(state.tier());
  if (state.folder->begun_anew()) tell_again(tier);
  std::vector<IndexRecord> records;
  state.folder->follow([&](const IndexRecord& record) { records.push_back(record); });
  const bool leads = !state.tier().read_only() && state.folder->lead();
  std::vector<BlobOwner> doubtful;
  {
    const std::lock_guard lock(mutex);
    for (const IndexRecord& record : records) apply(tier, record, false);
    state.leads = leads;
    if (std::exchange(state.has_others, state.folder->has_others()) != state.has_others) placer.room_changed();
    doubtful = std::exchange(state.doubtful, {});
  }
  for (const IndexRecord& record : records) {
    if (record.type == Type::kSettled) doubtful.push_back({record.name, record.tag});
  }
  for (const BlobOwner& owner : doubtful) look(tier, owner);
  find_unread_manifests(tier);
  if (leads) {
    for (const auto& unfinished : state.folder->unfinished_of_the_dead()) {
      if (settle(tier, unfinished)) state.folder->settled(unfinished.name);
    }
    if (state.folder->all_settled() && (std::exchange(state.snapshot_wanted, false) || state.folder->snapshot_due())) {
      (void)write_snapshot(tier);
    }
  }
  const std::lock_guard lock(mutex);
  find_unread(tier, clock.now_s());
  if (state.changes == 0) state.count_what_is_there();
}

// Counted already.
void StoreCore::find_unread(std::uint32_t tier, double until_s) {
  std::vector<IndexRecord> found;
  std::erase_if(tiers[tier].unread, [&](const auto& entry) {
    if (entry.second.again_s > until_s) return false;
    found.push_back(entry.second.stored);
    return true;
  });
  for (const IndexRecord& record : found) apply(tier, record, true);
}

// What nobody has counted and the tier will take off its count.
void StoreCore::remove_uncounted(std::uint32_t tier, const BlobOwner& owner) {
  Tier& from = tiers[tier].tier();
  from.count_others(static_cast<std::int64_t>(bytes_left(from, owner.name, owner.tag)));
  (void)remove_extent(from, owner.name, owner.tag);
}

// The folder was made anew after somebody had removed it, or records of it could not be written: what does not lie
// there whole any more is forgotten, and others hear of the rest. What is being written may lie in two folders by half:
// it is looked at when that has ended. With the folder's mutex held.
void StoreCore::tell_again(std::uint32_t tier) {
  TierState& state = tiers[tier];
  std::vector<BlobOwner> known;
  {
    const std::lock_guard lock(mutex);
    find_unread(tier);
    index.for_each([&](ExtentId, const Extent& extent) {
      if (extent.on(tier)) known.push_back({extent.name, extent.names[0]});
    });
    for (const auto& [name, begun] : state.writing) state.doubtful.push_back({name, begun.tag});
  }
  for (const BlobOwner& owner : known) {
    const auto stored = find_stored(state.tier(), owner.name, owner.tag, wall_s());
    const std::lock_guard lock(mutex);
    const auto id = index.find(owner.name);
    if (!id || !index.at(*id).on(tier)) continue;
    if (!stored || *stored) {
      log_stored(*id, tier);
    } else {
      state.tier().count_others(-static_cast<std::int64_t>(index.at(*id).bytes));
      clear_on(*id, tier);
      state.doubtful.push_back(owner);  // what is left of it goes
    }
  }
}

// What somebody was at when it died: whole extents are kept, all else goes. Others hear of it. False where the tier
// cannot read it now, which keeps its room until then, or this store is at it. With the folder's mutex held.
bool StoreCore::settle(std::uint32_t tier, const IndexFolder::Unfinished& unfinished) {
  TierState& state = tiers[tier];
  const BlobOwner owner{unfinished.name, unfinished.tag};
  auto stored = find_stored(state.tier(), owner.name, owner.tag, wall_s());
  if (!stored) return false;
  const bool is_whole = stored->has_value();
  if (is_whole && unfinished.writing) adopt(tier, std::move(**stored));
  {
    const std::lock_guard lock(mutex);
    if (state.writing.contains(owner.name)) return false;
    const auto id = index.find(unfinished.name);
    if (id && index.at(*id).on(tier)) {
      if (is_whole) {
        if (!unfinished.writing) log_settled(tier, owner);
        state.removing.erase(unfinished.name);
        return true;
      }
      state.tier().count_others(-static_cast<std::int64_t>(index.at(*id).bytes));
      clear_on(*id, tier);
    }
    state.removing.erase(unfinished.name);
    forget_writing(tier, unfinished.name);
  }
  remove_uncounted(tier, owner);
  const std::lock_guard lock(mutex);
  log_settled(tier, owner);
  return true;
}

// Two stores that write and remove the same extent at once cannot both be right: its blobs say who was. What is not
// whole is known no more, and the leader removes it. With the folder's mutex held.
void StoreCore::look(std::uint32_t tier, const BlobOwner& owner) {
  TierState& state = tiers[tier];
  const bool there = state.tier().contains(manifest_blob(owner.tag, owner.name));
  Result<std::optional<IndexRecord>> found = std::nullopt;
  if (there) found = find_stored(state.tier(), owner.name, owner.tag, wall_s());
  const auto doubt = [&] {
    const auto known = std::ranges::find(state.doubtful, owner.name, &BlobOwner::name);
    if (known == state.doubtful.end()) state.doubtful.push_back(owner);
  };
  std::unique_lock lock(mutex);
  if (!found || state.writing.contains(owner.name) || state.is_removed(owner.name)) {
    return doubt();  // until the tier says, and that has ended
  }
  auto& stored = *found;
  if (!there || stored) state.found_broken.erase(owner.name);
  if (there && !stored && !state.leads) {
    doubt();  // the leader may die before it has looked
    if (state.found_broken.insert(owner.name).second) log_settled(tier, owner);  // so that it looks
  }
  const auto id = index.find(owner.name);
  if (id && index.at(*id).on(tier)) {
    if (stored) return;
    if (state.leads) return remove_from(*id, tier);
    state.tier().count_others(-static_cast<std::int64_t>(index.at(*id).bytes));
    return clear_on(*id, tier);
  }
  const bool leads = state.leads;
  lock.unlock();
  if (stored) return adopt(tier, std::move(*stored));
  if (!there || !leads) return;
  // So that another leader ends it where this one dies.
  IndexRecord record{.type = Type::kRemoved, .time_s = wall_s(), .name = owner.name, .tag = owner.tag};
  state.folder->append(record);
  (void)state.folder->flush();
  remove_uncounted(tier, owner);
  record.type = Type::kSettled;
  state.folder->append(record);
}

// Takes in an extent that is whole and that the index does not have.
void StoreCore::adopt(std::uint32_t tier, IndexRecord stored) {
  const std::lock_guard lock(mutex);
  const auto id = index.find(stored.facts.name);
  if (id && index.at(*id).on(tier)) return;
  apply(tier, stored, false);
  log(tier, std::move(stored));
}

// With the folder's mutex held, or while opening. Extents that change meanwhile are in logs that are not folded yet.
Status StoreCore::write_snapshot(std::uint32_t tier) {
  std::vector<ExtentId> ids;
  {
    const std::lock_guard lock(mutex);
    find_unread(tier);
    index.for_each([&](ExtentId id, const Extent& extent) {
      if (extent.on(tier)) ids.push_back(id);
    });
  }
  return tiers[tier].folder->write_snapshot([&](const IndexFolder::Visit& add) {
    std::vector<IndexRecord> records;
    for (std::size_t first = 0; first < ids.size(); first += kExtentsAtOnce) {
      records.clear();
      {
        const std::lock_guard lock(mutex);
        for (std::size_t i = first; i < std::min(ids.size(), first + kExtentsAtOnce); ++i) {
          const Extent& extent = index.at(ids[i]);
          if (!extent.on(tier)) continue;
          IndexRecord record = record_of(ids[i]);
          record.time_s = wall_s();
          records.push_back(record);
          record.type = Type::kDamaged;
          record.name = extent.name;
          for (record.chunk = 0; record.chunk < extent.chunks; ++record.chunk) {
            if ((extent.damaged >> record.chunk & 1) != 0) records.push_back(record);
          }
          if (!extent.pinned(wall_s())) continue;
          IndexRecord lease = lease_of(extent);
          lease.time_s = record.time_s;
          lease.until_s = std::max(lease.until_s, extent.pinned_until_s);
          records.push_back(std::move(lease));
        }
      }
      for (const IndexRecord& record : records) add(record);
    }
    for (const auto& [object, part] : tiers[tier].unread_manifests) {
      add({.type = Type::kUnread, .time_s = wall_s(), .name = object, .chunk = part});
    }
  });
}

}  // namespace shale
