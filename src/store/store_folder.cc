// A tier's folder, shared with other stores: what they did, what the dead left, who leads.
#include <algorithm>

#include "store/store_core.h"

namespace shale {
namespace {

using Type = IndexRecord::Type;

constexpr std::size_t kManifestsAtOnce = 64;
constexpr std::size_t kExtentsAtOnce = 1000;  // told to a snapshot while the mutex is held
// A leader keeps so much free, so that those who may not make room find some.
constexpr std::uint64_t kHeadroomMax = std::uint64_t{64} << 20;
constexpr std::uint64_t kHeadroomShare = 16;  // of the capacity, at most

}  // namespace

Status StoreCore::open_folder(std::uint32_t tier) {
  TierState& state = tiers[tier];
  SHALE_ASSIGN(state.folder, IndexFolder::open(state.config.folder));
  bool whole = false;
  {
    const std::lock_guard lock(mutex);
    whole = state.folder->load([&](const IndexRecord& record) { apply(tier, record, true); });
  }
  if (!whole) SHALE_TRY(rebuild(tier));
  state.leads = state.folder->lead();
  const std::uint64_t known = state.known_bytes, counted = state.tier().used_bytes();
  state.tier().count_others(static_cast<std::int64_t>(known) - static_cast<std::int64_t>(counted));
  if (!whole && state.leads) SHALE_TRY(write_snapshot(tier));
  return {};
}

// From the manifests themselves. What nobody's index holds any more is forgotten where it is not there.
Status StoreCore::rebuild(std::uint32_t tier) {
  Tier& from = tiers[tier].tier();
  SHALE_ASSIGN(auto ids, from.list());
  std::vector<BlobId> parts;
  std::ranges::copy_if(ids, std::back_inserter(parts), [](const BlobId& id) { return !is_manifest(id); });
  std::erase_if(ids, [](const BlobId& id) { return !is_manifest(id); });
  const auto is_there = [&](const Hash128& name, std::uint32_t part) {
    return std::ranges::binary_search(parts, BlobId{name, part});
  };
  std::unordered_set<Hash128> found;
  for (std::size_t first = 0; first < ids.size(); first += kManifestsAtOnce) {
    std::vector<std::shared_ptr<TierRead>> reads;
    for (std::size_t i = first; i < std::min(ids.size(), first + kManifestsAtOnce); ++i) {
      reads.push_back(from.read(ids[i]));
    }
    for (const auto& read : reads) {
      const auto bytes = read->take();
      const auto manifest = bytes ? ExtentManifest::parse((*bytes)->bytes()) : std::unexpected(bytes.error());
      if (!manifest) continue;
      const Hash128 name = manifest->name();
      const auto whole = [&](double keep) {
        return std::ranges::all_of(stored_parts(*manifest, keep), [&](auto part) { return is_there(name, part); });
      };
      const auto keep = std::ranges::find_if(kKeepGrid.rbegin(), kKeepGrid.rend(), whole);
      if (keep == kKeepGrid.rend()) continue;
      IndexRecord record;
      record.type = Type::kStored;
      record.realm = {manifest->tenant, {}};
      record.facts = facts_of(*manifest, manifest->tenant, *keep, 0);
      record.facts.bytes = bytes_at_rest(*manifest, *keep, (*bytes)->size());
      record.facts.quality = record.facts.exact ? 1.0f : 0.0f;
      record.facts.accessed_s = wall_s();
      found.insert(name);
      const std::lock_guard lock(mutex);
      apply(tier, record, true);
    }
  }
  const std::lock_guard lock(mutex);
  std::vector<ExtentId> gone;
  index.for_each([&](ExtentId id, const Extent& extent) {
    if (extent.on(tier) && !found.contains(extent.name)) gone.push_back(id);
  });
  for (const ExtentId id : gone) clear_on(id, tier);
  return {};
}

void StoreCore::apply_stored(std::uint32_t tier, const IndexRecord& record, bool opening) {
  const auto realm = index.realm(record.realm);
  const auto id = realm ? index.add(record.facts, *realm) : std::nullopt;
  if (!id || index.at(*id).on(tier)) return;
  if (!opening && tiers[tier].others_writing.erase(record.facts.name) == 0) {
    tiers[tier].tier().count_others(static_cast<std::int64_t>(index.at(*id).bytes));
  }
  set_on(*id, tier);
}

void StoreCore::apply(std::uint32_t tier, const IndexRecord& record, bool opening) {
  TierState& state = tiers[tier];
  const auto id = index.find(record.name);
  switch (record.type) {
    case Type::kStored:
      return apply_stored(tier, record, opening);
    case Type::kWriting:
      if (!opening && !(id && index.at(*id).on(tier)) &&
          state.others_writing.emplace(record.name, record.bytes).second) {
        state.tier().count_others(static_cast<std::int64_t>(record.bytes));
      }
      return;
    case Type::kSettled:
      state.removing.erase(record.name);
      if (const auto writing = state.others_writing.extract(record.name)) {
        state.tier().count_others(-static_cast<std::int64_t>(writing.mapped()));
      }
      return;
    case Type::kRemoved:
      if (!opening) state.removing.insert(record.name);
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
      extent.pinned_until_s = record.until_s;
      extent.expires_s = record.expires_s;
      if (extent.expires_s != 0) expiries.emplace(extent.expires_s, extent.name);
      return;
    case Type::kUsed:
      extent.frequency = record.frequency;
      extent.accessed_s = std::max(extent.accessed_s, record.time_s);
      return;
    case Type::kDamaged:
      if (record.chunk < extent.chunks) index.hide_chunk(*id, record.chunk);
      return;
    default:
      return;
  }
}

void StoreCore::maintain_folder(std::uint32_t tier) {
  TierState& state = tiers[tier];
  flush_log(tier);
  const std::lock_guard folder_lock(*state.folder_mutex);
  std::vector<IndexRecord> records;
  state.folder->follow([&](const IndexRecord& record) { records.push_back(record); });
  const bool leads = !state.tier().read_only() && state.folder->lead();
  {
    const std::lock_guard lock(mutex);
    for (const IndexRecord& record : records) apply(tier, record, false);
    state.leads = leads;
  }
  for (const IndexRecord& record : records) {
    if (record.type == Type::kSettled) look(tier, record.name, record.tag);
  }
  if (leads) {
    for (const auto& unfinished : state.folder->unfinished_of_the_dead()) settle(tier, unfinished);
    if (state.folder->snapshot_due()) (void)write_snapshot(tier);
  }
  const std::lock_guard lock(mutex);
  if (state.changes == 0) {  // what was counted twice, or not at all, is put right
    std::uint64_t there = state.known_bytes;
    for (const auto& [name, bytes] : state.others_writing) there += bytes;
    state.tier().count_others(static_cast<std::int64_t>(there) - static_cast<std::int64_t>(state.tier().used_bytes()));
  }
  const std::uint64_t capacity = state.tier().capacity_bytes();
  if (leads && capacity != kUnlimited) make_room(tier, std::min(kHeadroomMax, capacity / kHeadroomShare));
}

// What somebody was at when it died: whole extents are kept, all else goes. Others hear of it.
void StoreCore::settle(std::uint32_t tier, const IndexFolder::Unfinished& unfinished) {
  TierState& state = tiers[tier];
  if (unfinished.writing) adopt(tier, unfinished.name, unfinished.tag);
  {
    const std::lock_guard lock(mutex);
    const auto id = index.find(unfinished.name);
    if (id && index.at(*id).on(tier)) return;
    state.removing.erase(unfinished.name);
    if (const auto writing = state.others_writing.extract(unfinished.name)) {
      state.tier().count_others(-static_cast<std::int64_t>(writing.mapped()));
    }
  }
  (void)remove_extent(state.tier(), unfinished.name, unfinished.tag);
  IndexRecord record;
  record.type = Type::kSettled;
  record.name = unfinished.name;
  record.tag = unfinished.tag;
  const std::lock_guard lock(mutex);
  log(tier, std::move(record));
}

// Two processes that write and remove the same extent at once cannot both be right: the manifest says who was.
void StoreCore::look(std::uint32_t tier, const Hash128& name, std::uint64_t tag) {
  if (tiers[tier].tier().contains(manifest_blob(tag, name))) return adopt(tier, name, tag);
  const std::lock_guard lock(mutex);
  const auto id = index.find(name);
  if (!id || !index.at(*id).on(tier)) return;
  tiers[tier].tier().count_others(-static_cast<std::int64_t>(index.at(*id).bytes));
  clear_on(*id, tier);
}

// Takes in an exact extent that is whole and that the index does not have.
void StoreCore::adopt(std::uint32_t tier, const Hash128& name, std::uint64_t tag) {
  {
    const std::lock_guard lock(mutex);
    const auto id = index.find(name);
    if (id && index.at(*id).on(tier)) return;
  }
  const auto bytes = tiers[tier].tier().read(manifest_blob(tag, name))->take();
  const auto manifest = bytes ? ExtentManifest::parse((*bytes)->bytes()) : std::unexpected(bytes.error());
  if (!manifest || manifest->name() != name || !manifest->method.is_full()) return;
  IndexRecord record;
  record.type = Type::kStored;
  record.realm = {manifest->tenant, {}};
  record.facts = facts_of(*manifest, manifest->tenant, 1, bytes_at_rest(*manifest, 1, (*bytes)->size()));
  const std::lock_guard lock(mutex);
  record.facts.accessed_s = wall_s();
  apply(tier, record, false);
  log(tier, std::move(record));
}

// With the folder's mutex held, or while opening. Extents that change meanwhile are in logs that are not folded yet.
Status StoreCore::write_snapshot(std::uint32_t tier) {
  std::vector<ExtentId> ids;
  {
    const std::lock_guard lock(mutex);
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
          IndexRecord record;
          record.type = Type::kStored;
          record.time_s = wall_s();
          record.realm = index.realms()[extent.realm];
          record.facts = index.facts(ids[i]);
          records.push_back(record);
          record.type = Type::kDamaged;
          record.name = extent.name;
          for (record.chunk = 0; record.chunk < extent.chunks; ++record.chunk) {
            if ((extent.damaged >> record.chunk & 1) != 0) records.push_back(record);
          }
          if (extent.pinned_until_s <= wall_s()) continue;
          record.type = Type::kLease;
          record.until_s = extent.pinned_until_s;
          record.expires_s = extent.expires_s;
          records.push_back(record);
        }
      }
      for (const IndexRecord& record : records) add(record);
    }
  });
}

void StoreCore::follow_folder(std::uint32_t tier) {
  if (!tiers[tier].config.folder.empty()) maintain_folder(tier);
}

void StoreCore::close_folders() {
  for (std::uint32_t t = 0; t < tier_count(); ++t) {
    if (tiers[t].folder) flush_log(t);
  }
}

}  // namespace shale
