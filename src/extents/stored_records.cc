#include "extents/stored_records.h"

#include <algorithm>
#include <iterator>

#include "extents/extent_io.h"

namespace shale {
namespace {

constexpr std::size_t kReadAgainAtOnce = 64;

bool does_not_say(const Result<BlobBytes>& manifest) {
  return !manifest && (manifest.error().code == ErrorCode::kIo || manifest.error().code == ErrorCode::kBusy);
}

// The part is of the manifest's extent.
std::optional<IndexRecord> record_from(const ExtentManifest& manifest, std::uint64_t manifest_bytes, double now_s,
                                       const std::function<bool(std::uint32_t part)>& is_there) {
  const auto keep = keep_there(manifest, is_there);
  if (!keep) return std::nullopt;
  IndexRecord record;
  record.type = IndexRecord::Type::kStored;
  record.realm = {manifest.tenant, {}};
  record.facts = facts_of(manifest, manifest.tenant, *keep, bytes_at_rest(manifest, *keep, manifest_bytes));
  record.facts.quality = record.facts.exact ? 1.0f : 0.0f;
  record.facts.accessed_s = now_s;
  return record;
}

Result<ExtentManifest> parsed(const Result<BlobBytes>& bytes) {
  return bytes ? ExtentManifest::parse((*bytes)->bytes()) : std::unexpected(bytes.error());
}

}  // namespace

Result<std::optional<IndexRecord>> find_stored(Tier& tier, const BlobId& manifest_id, double now_s) {
  const auto bytes = tier.read(manifest_id)->take();
  if (does_not_say(bytes)) return std::unexpected(bytes.error());
  const auto manifest = parsed(bytes);
  if (!manifest) return std::nullopt;
  SHALE_ASSIGN(const auto parts, tier.parts(manifest->name()));
  return record_from(*manifest, (*bytes)->size(), now_s,
                     [&](std::uint32_t part) { return std::ranges::find(parts, part) != parts.end(); });
}

Result<std::optional<IndexRecord>> find_stored(Tier& tier, const Hash128& name, std::uint64_t tag, double now_s) {
  SHALE_ASSIGN(auto record, find_stored(tier, manifest_blob(tag, name), now_s));
  if (record && record->facts.name != name) record.reset();
  return record;
}

bool read_again(Tier& tier, std::deque<BlobId>& unread, double now_s,
                const std::function<void(const IndexRecord&)>& visit) {
  bool any = false;
  for (std::size_t tries = std::min(kReadAgainAtOnce, unread.size()); tries > 0; --tries) {
    const BlobId manifest = unread.front();
    unread.pop_front();
    const auto stored = find_stored(tier, manifest, now_s);
    if (!stored) unread.push_back(manifest);
    if (stored && *stored) visit(**stored);
    any = any || stored;
  }
  return any;
}

Result<std::vector<BlobId>> for_each_stored(Tier& tier, double now_s,
                                            const std::function<void(const IndexRecord&)>& visit) {
  SHALE_ASSIGN(auto manifests, tier.list());
  std::vector<BlobId> parts;
  std::ranges::copy_if(manifests, std::back_inserter(parts), [](const BlobId& id) { return !is_manifest(id); });
  std::erase_if(manifests, [](const BlobId& id) { return !is_manifest(id); });
  std::vector<BlobId> unread;
  read_blobs(tier, manifests, [&](const BlobId& manifest, const Result<BlobBytes>& bytes) {
    if (does_not_say(bytes)) unread.push_back(manifest);
    const auto extent = parsed(bytes);
    if (!extent) return;
    const auto record = record_from(*extent, (*bytes)->size(), now_s, [&, name = extent->name()](std::uint32_t part) {
      return std::ranges::binary_search(parts, BlobId{name, part});
    });
    if (record) visit(*record);
  });
  return unread;
}

std::uint64_t bytes_left(const Tier& tier, const Hash128& name, std::uint64_t tag) {
  std::uint64_t bytes = tier.blob_bytes(manifest_blob(tag, name));
  const auto parts = tier.parts(name);
  if (!parts) return bytes;
  for (const std::uint32_t part : *parts) bytes += tier.blob_bytes({name, part});
  return bytes;
}

}  // namespace shale
