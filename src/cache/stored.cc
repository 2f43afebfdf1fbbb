#include "cache/stored.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "cache/entry_index.h"

namespace shale {

namespace {

Result<std::shared_ptr<const Manifest>> read_manifest(Tier& tier, const Hash128& object) {
  SHALE_ASSIGN(const BlobBytes bytes, tier.read({object, BlobId::kManifest})->take());
  SHALE_ASSIGN(Manifest manifest, Manifest::parse(bytes->bytes()));
  if (object_name(manifest.key, manifest.method) != object) {
    return fail(ErrorCode::kCorrupt, "object {} holds the manifest of another object", object.hex());
  }
  return std::make_shared<const Manifest>(std::move(manifest));
}

// Whole strata among the parts present, counted from the most important.
std::uint32_t strata_present(const Manifest& manifest, const std::set<std::uint32_t>& parts) {
  const std::uint32_t groups = manifest.layer_groups();
  std::uint32_t part = 0;
  while (part < manifest.chunks.size() && parts.contains(part)) ++part;
  return part / groups;
}

Status check_chunk(const Manifest& manifest, std::uint32_t part, const AlignedBuffer& bytes) {
  const ChunkInfo& chunk = manifest.chunks[part];
  if (bytes.size() == chunk.bytes && hash128(bytes.bytes()) == chunk.checksum) return {};
  return fail(ErrorCode::kCorrupt, "chunk {} of entry {} ({}) does not match its checksum", part, manifest.key.hex(),
              manifest.method.text());
}

}  // namespace

Result<std::vector<StoredManifest>> scan_objects(Tier& tier) {
  SHALE_ASSIGN(const std::vector<BlobId> blobs, tier.list());
  std::map<Hash128, std::set<std::uint32_t>> objects;
  for (const BlobId& blob : blobs) objects[blob.object].insert(blob.part);

  std::vector<StoredManifest> found;
  for (const auto& [object, parts] : objects) {
    StoredManifest& stored = found.emplace_back();
    stored.object = object;
    if (!parts.contains(BlobId::kManifest)) {
      stored.error = Error{ErrorCode::kNotFound, fmt::format("object {} has chunks and no manifest", object.hex())};
      continue;
    }
    auto manifest = read_manifest(tier, object);
    if (!manifest) {
      stored.error = std::move(manifest).error();
      continue;
    }
    stored.manifest = *manifest;
    stored.strata = strata_present(**manifest, parts);
    if (stored.strata == 0) {
      stored.error = Error{ErrorCode::kCorrupt, fmt::format("object {} lacks chunks", object.hex())};
    }
  }
  return found;
}

Status verify_object(Tier& tier, const StoredManifest& stored) {
  if (stored.error) return std::unexpected(*stored.error);
  const std::uint32_t chunks = stored.strata * stored.manifest->layer_groups();
  for (std::uint32_t part = 0; part < chunks; ++part) {
    SHALE_ASSIGN(const BlobBytes bytes, tier.read({stored.object, part})->take());
    SHALE_TRY(check_chunk(*stored.manifest, part, *bytes));
  }
  return {};
}

Status remove_object(Tier& tier, const Hash128& object) {
  SHALE_TRY(tier.remove({object, BlobId::kManifest}));
  SHALE_ASSIGN(const std::vector<BlobId> blobs, tier.list());
  for (auto blob = std::ranges::lower_bound(blobs, BlobId{object, 0}); blob != blobs.end() && blob->object == object;
       ++blob) {
    SHALE_TRY(tier.remove(*blob));
  }
  return {};
}

Status remove_object(Tier& tier, const Manifest& manifest) {
  const Hash128 object = object_name(manifest.key, manifest.method);
  SHALE_TRY(tier.remove({object, BlobId::kManifest}));
  SHALE_TRY(tier.remove({object, kQueriesPart}));
  return remove_strata(tier, manifest, 0);
}

Status remove_strata(Tier& tier, const Manifest& manifest, std::uint32_t strata) {
  const Hash128 object = object_name(manifest.key, manifest.method);
  const auto first = strata * manifest.layer_groups();
  for (auto part = static_cast<std::uint32_t>(manifest.chunks.size()); part > first; --part) {
    SHALE_TRY(tier.remove({object, part - 1}));
  }
  return {};
}

ObjectBytes object_bytes(std::shared_ptr<const ObjectEncoder::Encoded> encoded, std::uint32_t strata) {
  ObjectBytes object{.manifest = {encoded, &encoded->manifest}, .chunks = {}, .strata = strata};
  const std::uint32_t chunks = strata * encoded->manifest.layer_groups();
  for (std::uint32_t part = 0; part < chunks; ++part) object.chunks.emplace_back(encoded, &encoded->chunks[part]);
  return object;
}

ObjectWriter::ObjectWriter(Tier& tier, ObjectBytes object)
    : tier_(&tier), object_(std::move(object)), name_(object_name(object_.manifest->key, object_.manifest->method)) {
  for (std::uint32_t part = 0; part < object_.chunks.size(); ++part) {
    chunk_writes_.push_back(tier.write({name_, part}, object_.chunks[part]));
  }
}

bool ObjectWriter::poll() {
  if (manifest_write_) return manifest_write_->ready();
  if (!std::ranges::all_of(chunk_writes_, [](const auto& write) { return write->ready(); })) return false;
  if (!std::ranges::all_of(chunk_writes_, [](const auto& write) { return write->wait().has_value(); })) return true;
  manifest_write_ =
      tier_->write({name_, BlobId::kManifest}, std::make_shared<const AlignedBuffer>(object_.manifest->serialize()));
  return manifest_write_->ready();
}

Status ObjectWriter::finish() {
  Status status;
  for (const auto& write : chunk_writes_) {
    if (Status written = write->wait(); !written && status) status = std::move(written);
  }
  if (status) {
    poll();
    status = manifest_write_->wait();
  }
  // The first error is what matters; what cannot be removed now is found as an object without a manifest later.
  if (!status) static_cast<void>(remove_object(*tier_, *object_.manifest));
  return status;
}

ObjectReader::ObjectReader(Tier& tier, std::shared_ptr<const Manifest> manifest, std::uint32_t strata)
    : object_{.manifest = std::move(manifest), .chunks = {}, .strata = strata} {
  const Hash128 name = object_name(object_.manifest->key, object_.manifest->method);
  const std::uint32_t chunks = strata * object_.manifest->layer_groups();
  for (std::uint32_t part = 0; part < chunks; ++part) reads_.push_back(tier.read({name, part}));
}

bool ObjectReader::poll() const {
  return std::ranges::all_of(reads_, [](const auto& read) { return read->ready(); });
}

Result<ObjectBytes> ObjectReader::finish() {
  for (std::uint32_t part = 0; part < reads_.size(); ++part) {
    SHALE_ASSIGN(BlobBytes bytes, reads_[part]->take());
    SHALE_TRY(check_chunk(*object_.manifest, part, *bytes));
    object_.chunks.push_back(std::move(bytes));
  }
  return std::move(object_);
}

}  // namespace shale
