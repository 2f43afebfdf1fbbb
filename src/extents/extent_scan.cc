#include "extents/extent_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/clock.h"
#include "extents/agreement.h"
#include "extents/extent_io.h"

namespace shale {
namespace {

using Parts = std::map<Hash128, std::vector<BlobId>>;  // by object

ScannedExtent unusable(const BlobId& id, Error error) {
  ScannedExtent extent;
  extent.name = id.object;
  extent.blobs = {id};
  extent.error = std::move(error);
  return extent;
}

// The manifest's own parts leave `parts`.
std::optional<ScannedExtent> take_extent(Tier& tier, const BlobId& id, const Result<BlobBytes>& bytes, Parts& parts) {
  if (!bytes && bytes.error().code == ErrorCode::kNotFound) return std::nullopt;  // removed since it was listed
  auto manifest = bytes ? ExtentManifest::parse((*bytes)->bytes()) : std::unexpected(bytes.error());
  if (!manifest) return unusable(id, std::move(manifest).error());
  ScannedExtent extent;
  extent.name = manifest->name();
  if (id != manifest_blob(chunk_tag(manifest->keys.front(), manifest->tenant), extent.name)) {
    return unusable(id, {ErrorCode::kCorrupt, fmt::format("{} is the manifest of another extent", to_string(id))});
  }
  extent.blobs = {id};
  std::vector<BlobId> there = parts[extent.name];
  const auto is_there = [&](std::uint32_t part) {
    return std::ranges::find(there, part, &BlobId::part) != there.end();
  };
  auto keep = keep_there(*manifest, is_there);
  if (!keep) {  // parts that were written between the listing of theirs and of the manifest
    if (auto now = tier.parts(extent.name)) {
      there.clear();
      for (const std::uint32_t part : *now) there.push_back({extent.name, part});
    }
    keep = keep_there(*manifest, is_there);
  }
  parts.erase(extent.name);
  extent.blobs.insert(extent.blobs.end(), there.begin(), there.end());
  if (!keep) {
    if (!tier.contains(id)) return std::nullopt;
    extent.error = {ErrorCode::kCorrupt, fmt::format("extent {} has lost parts", extent.name.hex())};
    return extent;
  }
  extent.keep = *keep;
  extent.bytes = bytes_at_rest(*manifest, *keep, (*bytes)->size());
  extent.manifest = std::make_shared<const ExtentManifest>(std::move(*manifest));
  return extent;
}

}  // namespace

std::uint64_t ScannedExtent::tag() const { return chunk_tag(manifest->keys.front(), manifest->tenant); }

Result<std::vector<ScannedExtent>> scan_extents(Tier& tier) {
  SHALE_ASSIGN(const std::vector<BlobId> ids, tier.list());
  std::vector<BlobId> manifests;
  Parts parts;
  std::vector<ScannedExtent> extents;
  const auto of_another_version = [&](const BlobId& id) {  // these have their manifest among their parts
    return std::ranges::binary_search(ids, BlobId{id.object, BlobId::kManifest});
  };
  for (const BlobId& id : ids) {
    if (is_agreement(id)) continue;
    if (is_manifest(id) && !of_another_version(id)) {
      manifests.push_back(id);
    } else {
      parts[id.object].push_back(id);
    }
  }
  read_blobs(tier, manifests, [&](const BlobId& id, const Result<BlobBytes>& bytes) {
    if (auto extent = take_extent(tier, id, bytes, parts)) extents.push_back(std::move(*extent));
  });
  for (auto& [object, blobs] : parts) {
    ScannedExtent rest = unusable({object, 0}, {ErrorCode::kNotFound, "has no manifest"});
    std::ranges::sort(blobs, std::greater<>());  // an old object's manifest first
    if (blobs.front().part == BlobId::kManifest) {
      rest.error = {ErrorCode::kMismatch, fmt::format("object {} is of another version", object.hex())};
    }
    rest.blobs = std::move(blobs);
    extents.push_back(std::move(rest));
  }
  std::ranges::sort(extents, {}, &ScannedExtent::name);
  return extents;
}

bool is_abandoned(const Tier& tier, const ScannedExtent& extent) {
  if (!extent.error) return false;
  if (extent.error->code == ErrorCode::kCorrupt) return true;
  return extent.error->code == ErrorCode::kNotFound && std::ranges::all_of(extent.blobs, [&](const BlobId& id) {
           return tier.untouched_s(id) >= kAbandonedAfterSeconds;
         });
}

Status verify_extent(Tier& tier, const ScannedExtent& extent) {
  return verify_parts(tier, *extent.manifest, extent.keep);
}

Status remove_scanned(Tier& tier, IndexFolder* folder, const ScannedExtent& extent) {
  IndexRecord record;
  record.name = extent.name;
  record.bytes = extent.bytes;
  record.time_s = wall_clock_s();
  record.tag = extent.manifest ? extent.tag() : 0;
  const auto tell = [&](IndexRecord::Type type) -> Status {
    if (!folder || !extent.manifest) return {};
    record.type = type;
    folder->append(record);
    return folder->flush();
  };
  SHALE_TRY(tell(IndexRecord::Type::kRemoved));
  for (const BlobId& id : extent.blobs) SHALE_TRY(tier.remove(id));
  return tell(IndexRecord::Type::kSettled);
}

}  // namespace shale
