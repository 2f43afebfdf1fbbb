#include "extents/extent_io.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tiers/blob_frame.h"

namespace shale {
namespace {

constexpr std::uint64_t kComparedAtOnce = std::uint64_t{4} << 20;  // with checksums: a millisecond or two

constexpr std::uint32_t kManifestBit = 0x80000000u;
constexpr std::size_t kReadAtOnce = 64;

}  // namespace

Hash128 manifests_object(std::uint64_t tag) { return Hasher().add(std::string_view("chunk")).add(tag).finish(); }

BlobId manifest_blob(std::uint64_t tag, const Hash128& extent) {
  return {manifests_object(tag), kManifestBit | static_cast<std::uint32_t>(extent.low)};
}

bool is_manifest(const BlobId& id) { return (id.part & kManifestBit) != 0; }

std::uint64_t bytes_at_rest(std::uint64_t blob_bytes) { return framed_bytes(blob_bytes); }

double grid_keep(double keep) {
  constexpr double kRounding = 1e-6;
  return kKeepGrid[tiers_for(std::max(keep - kRounding, kRounding)) - 1];
}

std::vector<std::uint32_t> stored_parts(const ExtentManifest& manifest, double keep) {
  std::vector<std::uint32_t> parts = manifest.blobs_for(grid_keep(keep));
  for (auto part = static_cast<std::uint32_t>(manifest.blobs.size()); part < manifest.parts(); ++part) {
    parts.push_back(part);
  }
  std::erase_if(parts, [&](std::uint32_t part) { return manifest.part_bytes(part) == 0; });
  return parts;
}

std::optional<double> keep_there(const ExtentManifest& manifest, const std::function<bool(std::uint32_t)>& is_there) {
  const auto whole = [&](double keep) { return std::ranges::all_of(stored_parts(manifest, keep), is_there); };
  const auto keep = std::ranges::find_if(kKeepGrid.rbegin(), kKeepGrid.rend(), whole);
  return keep == kKeepGrid.rend() ? std::nullopt : std::optional(*keep);
}

std::uint64_t bytes_at_rest(const ExtentManifest& manifest, double keep, std::uint64_t manifest_bytes) {
  std::uint64_t bytes = bytes_at_rest(manifest_bytes);
  for (const std::uint32_t part : stored_parts(manifest, keep)) bytes += bytes_at_rest(manifest.part_bytes(part));
  return bytes;
}

ExtentFacts facts_of(const ExtentManifest& manifest, const Hash128& realm, double keep, std::uint64_t bytes) {
  ExtentFacts facts;
  facts.name = manifest.name();
  facts.run = manifest.run;
  facts.label = manifest.label;
  facts.first_block = manifest.first_position / manifest.geometry.block_tokens;
  facts.method = manifest.method.text();
  for (const RankingInfo& ranking : manifest.rankings) facts.rankings += ranking.name + ",";
  facts.exact = manifest.method.is_full();
  facts.keep = static_cast<float>(grid_keep(keep));
  facts.bytes = bytes;
  name_chunks(manifest.keys, realm, manifest.chunk_tokens / manifest.geometry.block_tokens, facts);
  return facts;
}

std::uint64_t ExtentBlobs::bytes() const {
  std::uint64_t bytes = bytes_at_rest(manifest->size());
  for (const BlobBytes& part : parts) bytes += part ? bytes_at_rest(part->size()) : 0;
  return bytes;
}

std::shared_ptr<ExtentBlobs> blobs_of(const ExtentManifest& manifest, std::vector<AlignedBuffer> parts, double keep,
                                      BufferPool& buffers) {
  auto blobs = std::make_shared<ExtentBlobs>();
  blobs->name = manifest.name();
  blobs->manifest = std::make_shared<AlignedBuffer>(manifest.serialize());
  blobs->parts.resize(parts.size());
  for (const std::uint32_t part : stored_parts(manifest, keep)) {
    blobs->parts[part] = buffers.share(std::move(parts[part]));
  }
  return blobs;
}

ExtentWriter::ExtentWriter(Tier& tier, std::shared_ptr<const ExtentBlobs> blobs)
    : tier_(tier), blobs_(std::move(blobs)) {
  for (std::uint32_t part = 0; part < blobs_->parts.size(); ++part) {
    const BlobBytes& bytes = blobs_->parts[part];
    writes_.push_back(bytes ? tier_.write({blobs_->name, part}, bytes) : nullptr);
  }
}

bool ExtentWriter::poll() {
  const auto ready = [](const auto& write) { return !write || write->ready(); };
  if (over_) return true;
  if (!manifest_write_) {
    if (!std::ranges::all_of(writes_, ready)) return false;
    for (const auto& write : writes_) {
      if (!write) continue;
      if (Status written = write->wait(); !written && status_) status_ = std::move(written);
    }
    if (!status_) return over_ = true;
    manifest_write_ = tier_.write(manifest_blob(blobs_->tag, blobs_->name), blobs_->manifest);
  }
  if (!manifest_write_->ready()) return false;
  status_ = manifest_write_->wait();
  return over_ = true;
}

std::vector<BlobId> ExtentWriter::left() const {
  std::vector<BlobId> made;
  for (std::uint32_t part = 0; !status_ && part < writes_.size(); ++part) {
    if (writes_[part] && writes_[part]->created()) made.push_back({blobs_->name, part});
  }
  return made;
}

ExtentReader::ExtentReader(Tier& tier, const Hash128& name, std::uint64_t tag, double keep, bool verify)
    : tier_(tier),
      keep_(keep),
      verify_(verify),
      blobs_(std::make_shared<ExtentBlobs>()),
      manifest_read_(tier.read(manifest_blob(tag, name))) {
  blobs_->name = name;
  blobs_->tag = tag;
}

bool ExtentReader::poll() {
  if (manifest_read_) {
    if (!manifest_read_->ready()) return false;
    Result<BlobBytes> bytes = std::exchange(manifest_read_, nullptr)->take();
    auto manifest = bytes ? ExtentManifest::parse((*bytes)->bytes()) : std::unexpected(bytes.error());
    if (!manifest) return end(std::unexpected(std::move(manifest).error()));
    if (manifest->name() != blobs_->name) {
      return end(fail(ErrorCode::kNotFound, "extent {}: its manifest is another's", blobs_->name.hex()));
    }
    blobs_->manifest = std::move(*bytes);
    manifest_ = std::move(*manifest);
    reads_.resize(manifest_->parts());
    for (const std::uint32_t part : stored_parts(*manifest_, keep_)) reads_[part] = tier_.read({blobs_->name, part});
  }
  for (std::uint64_t compared = 0; status_ && blobs_->parts.size() < reads_.size();) {
    const auto part = static_cast<std::uint32_t>(blobs_->parts.size());
    if (compared > kComparedAtOnce || (reads_[part] && !reads_[part]->ready())) return false;
    auto bytes = reads_[part] ? reads_[part]->take() : Result<BlobBytes>(nullptr);
    if (!bytes) return end(std::unexpected(std::move(bytes).error()));
    if (*bytes && (*bytes)->size() < manifest_->part_bytes(part)) {
      return end(fail(ErrorCode::kCorrupt, "part {} of extent {} is short", part, blobs_->name.hex()));
    }
    if (*bytes && part < manifest_->blobs.size() && verify_) {  // rankings are compared where they are used
      damaged_ |= manifest_->damaged_chunks(part, (*bytes)->bytes());
      compared += (*bytes)->size();
    }
    blobs_->parts.push_back(std::move(*bytes));
  }
  return true;
}

bool ExtentReader::end(std::unexpected<Error> error) {
  damaged_ = ~0u;
  status_ = std::move(error);
  return true;
}

Result<std::shared_ptr<const ExtentBlobs>> ExtentReader::finish() {
  SHALE_TRY(status_);
  if (damaged_ != 0) return fail(ErrorCode::kCorrupt, "chunks of extent {} are damaged", blobs_->name.hex());
  return std::shared_ptr<const ExtentBlobs>(blobs_);
}

Status verify_parts(Tier& tier, const ExtentManifest& manifest, double keep) {
  const Hash128 name = manifest.name();
  for (const std::uint32_t part : stored_parts(manifest, keep)) {
    SHALE_ASSIGN(const BlobBytes bytes, tier.read({name, part})->take());
    if (bytes->size() != manifest.part_bytes(part)) {
      return fail(ErrorCode::kCorrupt, "the length of part {} of extent {} is damaged", part, name.hex());
    }
    SHALE_TRY(manifest.check_part(part, bytes->bytes()));
  }
  return {};
}

Status verify_extent(Tier& tier, const Hash128& name, std::uint64_t tag, double keep) {
  SHALE_ASSIGN(const BlobBytes serialized, tier.read(manifest_blob(tag, name))->take());
  SHALE_ASSIGN(const ExtentManifest manifest, ExtentManifest::parse(serialized->bytes()));
  if (manifest.name() != name) return fail(ErrorCode::kCorrupt, "extent {}: its manifest is another one's", name.hex());
  return verify_parts(tier, manifest, keep);
}

void read_blobs(Tier& tier, std::span<const BlobId> ids,
                const std::function<void(const BlobId&, const Result<BlobBytes>&)>& visit) {
  for (; !ids.empty(); ids = ids.subspan(std::min(kReadAtOnce, ids.size()))) {
    const auto some = ids.first(std::min(kReadAtOnce, ids.size()));
    std::vector<std::shared_ptr<TierRead>> reads;
    for (const BlobId& id : some) reads.push_back(tier.read(id));
    for (std::size_t i = 0; i < some.size(); ++i) visit(some[i], reads[i]->take());
  }
}

Status remove_extent(Tier& tier, const Hash128& name, std::uint64_t tag) {
  SHALE_TRY(tier.remove(manifest_blob(tag, name)));
  SHALE_ASSIGN(const auto parts, tier.parts(name));
  for (const std::uint32_t part : parts) SHALE_TRY(tier.remove({name, part}));
  return {};
}

}  // namespace shale
