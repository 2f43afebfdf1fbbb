#include "extents/stored_records.h"

#include <algorithm>
#include <iterator>

#include "extents/extent_io.h"

namespace shale {
namespace {

bool does_not_say(const Result<BlobBytes>& manifest) {
  return !manifest && (manifest.error().code == ErrorCode::kIo || manifest.error().code == ErrorCode::kBusy);
}

std::optional<IndexRecord> record_from(const Result<BlobBytes>& bytes, double now_s,
                                       const std::function<bool(const BlobId&)>& is_there) {
  const auto manifest = bytes ? ExtentManifest::parse((*bytes)->bytes()) : std::unexpected(bytes.error());
  if (!manifest) return std::nullopt;
  const Hash128 name = manifest->name();
  const auto keep = keep_there(*manifest, [&](std::uint32_t part) { return is_there({name, part}); });
  if (!keep) return std::nullopt;
  IndexRecord record;
  record.type = IndexRecord::Type::kStored;
  record.realm = {manifest->tenant, {}};
  record.facts = facts_of(*manifest, manifest->tenant, *keep, bytes_at_rest(*manifest, *keep, (*bytes)->size()));
  record.facts.quality = record.facts.exact ? 1.0f : 0.0f;
  record.facts.accessed_s = now_s;
  return record;
}

}  // namespace

Result<std::optional<IndexRecord>> find_stored(Tier& tier, const Hash128& name, std::uint64_t tag, double now_s) {
  const auto manifest = tier.read(manifest_blob(tag, name))->take();
  if (does_not_say(manifest)) return std::unexpected(manifest.error());
  SHALE_ASSIGN(const auto parts, tier.parts(name));
  auto record =
      record_from(manifest, now_s, [&](const BlobId& id) { return std::ranges::find(parts, id.part) != parts.end(); });
  if (record && record->facts.name != name) record.reset();
  return record;
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
    const auto record =
        record_from(bytes, now_s, [&](const BlobId& id) { return std::ranges::binary_search(parts, id); });
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
