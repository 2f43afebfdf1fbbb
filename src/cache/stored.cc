#include "cache/stored.h"

#include <algorithm>
#include <utility>

#include "cache/stored_observations.h"

namespace shale {

namespace {

constexpr std::size_t kManifestsInFlight = 64;

// "No such blob" here means that it was removed since it was listed.
Result<std::shared_ptr<const Manifest>> take_manifest(TierRead& read, const Hash128& object) {
  SHALE_ASSIGN(const BlobBytes bytes, read.take());
  SHALE_ASSIGN(Manifest manifest, Manifest::parse(bytes->bytes()));
  if (manifest.name() != object) {
    return fail(ErrorCode::kCorrupt, "object {} holds the manifest of another object", object.hex());
  }
  return std::make_shared<const Manifest>(std::move(manifest));
}

// Whole strata among the parts present, counted from the most important.
std::uint32_t strata_present(const Manifest& manifest, std::span<const std::uint32_t> parts, Bits bits) {
  auto strata = static_cast<std::uint32_t>(manifest.strata_tokens.size());
  while (strata > 0 && !std::ranges::includes(parts, manifest.chunks_for(strata, bits))) --strata;
  return strata;
}

bool untouched(const Tier& tier, const Hash128& object, std::span<const std::uint32_t> parts) {
  return std::ranges::all_of(
      parts, [&](std::uint32_t part) { return tier.untouched_s({object, part}) >= kAbandonedAfterSeconds; });
}

Status check_chunk(const Manifest& manifest, std::uint32_t part, const AlignedBuffer& bytes) {
  const ChunkInfo& chunk = manifest.chunks[part];
  if (bytes.size() == chunk.bytes && hash128(bytes.bytes()) == chunk.checksum) return {};
  return fail(ErrorCode::kCorrupt, "chunk {} of entry {} ({}) does not match its checksum", part, manifest.key.hex(),
              manifest.method.text());
}

// Fills in what the object is. `read`: of its manifest; null where it has none.
void judge(const Tier& tier, std::shared_ptr<TierRead> read, std::span<const std::uint32_t> parts,
           StoredManifest& stored) {
  const std::string name = stored.object.hex();
  if (!read) {
    stored.error = Error{ErrorCode::kNotFound, fmt::format("object {} has chunks and no manifest", name)};
  } else if (auto manifest = take_manifest(*read, stored.object); !manifest) {
    stored.error = std::move(manifest).error();
  } else {
    stored.manifest = *manifest;
    stored.strata = strata_present(**manifest, parts, Bits::kAll);
    // More tokens at fewer bits: the refinement was dropped, and with it what is left of one is void.
    const std::uint32_t coarse = strata_present(**manifest, parts, Bits::kBase);
    if (coarse > stored.strata) {
      stored.strata = coarse;
      stored.bits = Bits::kBase;
    }
    if (stored.strata == 0) stored.error = Error{ErrorCode::kCorrupt, fmt::format("object {} lacks chunks", name)};
  }
  if (!stored.error || stored.error->code == ErrorCode::kMismatch || stored.error->code == ErrorCode::kIo) return;
  stored.abandoned = untouched(tier, stored.object, parts);
  // A list is no snapshot: a manifest may be there before the chunks that it follows are seen.
  if (stored.manifest && !stored.abandoned) stored.error->code = ErrorCode::kNotFound;
}

}  // namespace

Result<std::vector<StoredManifest>> scan_objects(Tier& tier) {
  SHALE_ASSIGN(const std::vector<BlobId> blobs, tier.list());
  std::vector<StoredManifest> found;
  std::vector<std::vector<std::uint32_t>> parts;  // of each, ascending: the manifest's, where there is one, is the last
  for (const BlobId& blob : blobs) {
    if (found.empty() || found.back().object != blob.object) {
      found.push_back({.object = blob.object, .manifest = nullptr, .error = std::nullopt});
      parts.emplace_back();
    }
    parts.back().push_back(blob.part);
  }

  std::vector<std::shared_ptr<TierRead>> reads(found.size());
  const auto start_read = [&](std::size_t i) {
    const bool has_manifest = i < found.size() && parts[i].back() == BlobId::kManifest;
    if (has_manifest) reads[i] = tier.read({found[i].object, BlobId::kManifest});
  };
  for (std::size_t i = 0; i < kManifestsInFlight; ++i) start_read(i);
  for (std::size_t i = 0; i < found.size(); ++i) {
    start_read(i + kManifestsInFlight);
    judge(tier, std::exchange(reads[i], nullptr), parts[i], found[i]);
  }
  return found;
}

Status verify_object(Tier& tier, const StoredManifest& stored) {
  if (stored.error) return std::unexpected(*stored.error);
  for (const std::uint32_t part : stored.manifest->chunks_for(stored.strata, stored.bits)) {
    SHALE_ASSIGN(const BlobBytes bytes, tier.read({stored.object, part})->take());
    SHALE_TRY(check_chunk(*stored.manifest, part, *bytes));
  }
  return {};
}

Status remove_object(Tier& tier, const Hash128& object) {
  SHALE_TRY(tier.remove({object, BlobId::kManifest}));
  SHALE_ASSIGN(const auto parts, tier.parts(object));
  for (const std::uint32_t part : parts) SHALE_TRY(tier.remove({object, part}));
  return {};
}

Status remove_chunks(Tier& tier, const Manifest& manifest, std::uint32_t strata, Bits bits) {
  const Hash128 object = manifest.name();
  const std::vector<std::uint32_t> kept = manifest.chunks_for(strata, bits);
  for (auto part = static_cast<std::uint32_t>(manifest.chunks.size()); part > 0; --part) {
    if (!std::ranges::binary_search(kept, part - 1)) SHALE_TRY(tier.remove({object, part - 1}));
  }
  return {};
}

ObjectBytes object_bytes(std::shared_ptr<const ObjectEncoder::Encoded> encoded, std::uint32_t strata, Bits bits) {
  ObjectBytes object{.manifest = {encoded, &encoded->manifest}, .chunks = {}, .strata = strata, .bits = bits};
  for (const std::uint32_t part : encoded->manifest.chunks_for(strata, bits)) {
    object.chunks.emplace_back(encoded, &encoded->chunks[part]);
  }
  return object;
}

ObjectWriter::ObjectWriter(Tier& tier, ObjectBytes object)
    : tier_(&tier),
      object_(std::move(object)),
      name_(object_.manifest->name()),
      parts_(object_.manifest->chunks_for(object_.strata, object_.bits)) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    chunk_writes_.push_back(tier.write({name_, parts_[i]}, object_.chunks[i]));
  }
  if (object_.observations) observations_write_ = tier.write({name_, kObservationsPart}, object_.observations);
}

bool ObjectWriter::poll() {
  if (manifest_write_) return manifest_write_->ready();
  if (!std::ranges::all_of(chunk_writes_, [](const auto& write) { return write->ready(); })) return false;
  if (observations_write_ && !observations_write_->ready()) return false;
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
  if (observations_write_) static_cast<void>(observations_write_->wait());
  if (status) {
    poll();
    status = manifest_write_->wait();
  }
  if (status) status = check_found_chunks();
  if (!status) take_back();
  return status;
}

Status ObjectWriter::check_found_chunks() const {
  for (std::size_t i = 0; i < chunk_writes_.size(); ++i) {
    if (chunk_writes_[i]->created() || tier_->contains({name_, parts_[i]})) continue;
    return fail(ErrorCode::kBusy,
                "chunk {} of object {} was removed by another process while this one wrote the object", parts_[i],
                name_.hex());
  }
  return {};
}

// The first error is what matters: what cannot be removed now is found as unfinished later.
void ObjectWriter::take_back() {
  if (manifest_write_ && manifest_write_->created()) static_cast<void>(tier_->remove({name_, BlobId::kManifest}));
  if (tier_->contains({name_, BlobId::kManifest})) return;
  for (std::size_t i = 0; i < chunk_writes_.size(); ++i) {
    if (chunk_writes_[i]->created()) static_cast<void>(tier_->remove({name_, parts_[i]}));
  }
  if (observations_write_ && observations_write_->created())
    static_cast<void>(tier_->remove({name_, kObservationsPart}));
}

ObjectReader::ObjectReader(Tier& tier, std::shared_ptr<const Manifest> manifest, std::uint32_t strata, Bits bits)
    : object_{.manifest = std::move(manifest), .chunks = {}, .strata = strata, .bits = bits} {
  const Hash128 name = object_.manifest->name();
  for (const std::uint32_t part : object_.manifest->chunks_for(strata, bits)) reads_.push_back(tier.read({name, part}));
  if (object_.manifest->method.is_full()) observations_read_ = tier.read({name, kObservationsPart});
}

bool ObjectReader::poll() const {
  return std::ranges::all_of(reads_, [](const auto& read) { return read->ready(); }) &&
         (!observations_read_ || observations_read_->ready());
}

Result<ObjectBytes> ObjectReader::finish() {
  if (observations_read_) object_.observations = observations_read_->take().value_or(nullptr);
  const std::vector<std::uint32_t> parts = object_.manifest->chunks_for(object_.strata, object_.bits);
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    SHALE_ASSIGN(BlobBytes bytes, reads_[i]->take());
    SHALE_TRY(check_chunk(*object_.manifest, parts[i], *bytes));
    object_.chunks.push_back(std::move(bytes));
  }
  return std::move(object_);
}

}  // namespace shale
