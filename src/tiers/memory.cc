#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "tier/pending.h"
#include "tiers/tiers.h"

namespace shale {
namespace {

// A buffer that occupies about what the tier accounts for it: reused buffers may be larger than their bytes need, those
// of files by their frame. As it is where there is no memory for another.
BlobBytes fitting(BlobBytes bytes) {
  constexpr std::size_t kSlackShare = 32;
  if (bytes->capacity() <= round_up(bytes->size(), kIoAlignment) + bytes->size() / kSlackShare) return bytes;
  if (bytes->capacity() == kIoAlignment) return bytes;
  try {
    auto copy = std::make_shared<AlignedBuffer>(bytes->size());
    std::memcpy(copy->data(), bytes->data(), bytes->size());
    return copy;
  } catch (const std::bad_alloc&) {
    return bytes;
  }
}

class MemoryTier final : public Tier {
 public:
  MemoryTier(std::uint64_t capacity_bytes, const Clock& clock, std::string name)
      : Tier({std::move(name), capacity_bytes, {1e-6, 1e10, 1e10}}, clock) {}

  bool persistent() const override { return false; }
  std::string describe() const override { return "memory: encoded objects in host memory"; }

 private:
  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double start_s) override {
    Result<BlobBytes> result = find(id, range);
    const double seconds = clock_.now_s() - start_s;
    finished_read(start_s, seconds, result, range);
    auto read = std::make_shared<PendingRead>();
    read->complete(std::move(result), seconds);
    return read;
  }

  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override {
    const std::uint64_t size = bytes->size();
    bytes = fitting(std::move(bytes));
    bool stored = false;
    {
      const std::lock_guard lock(mutex_);
      stored = blobs_.try_emplace(id, std::move(bytes)).second;
    }
    finished_write(start_s, clock_.now_s() - start_s, size, stored, {});
    return finished_tier_write(stored);
  }

  Result<std::uint64_t> remove_impl(const BlobId& id) override {
    const std::lock_guard lock(mutex_);
    const auto blob = blobs_.extract(id);
    return blob ? stored_bytes(blob.mapped()->size()) : 0;
  }

  Result<std::vector<BlobId>> list_impl() const override {
    const std::lock_guard lock(mutex_);
    std::vector<BlobId> ids;
    ids.reserve(blobs_.size());
    for (const auto& [id, bytes] : blobs_) ids.push_back(id);
    return ids;
  }

  Result<std::vector<std::uint32_t>> parts_impl(const Hash128& object) const override {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint32_t> parts;
    for (auto blob = blobs_.lower_bound({object, 0}); blob != blobs_.end() && blob->first.object == object; ++blob) {
      parts.push_back(blob->first.part);
    }
    return parts;
  }

  std::uint64_t blob_bytes_impl(const BlobId& id) const override {
    const std::lock_guard lock(mutex_);
    const auto blob = blobs_.find(id);
    return blob == blobs_.end() ? 0 : stored_bytes(blob->second->size());
  }

  Result<BlobBytes> find(const BlobId& id, const BlobRange& range) const {
    const std::lock_guard lock(mutex_);
    const auto blob = blobs_.find(id);
    if (blob == blobs_.end()) return fail(ErrorCode::kNotFound, "{} is not in memory", to_string(id));
    const std::uint64_t size = blob->second->size();
    if (!range.whole() && (range.offset > size || range.bytes > size - range.offset)) {
      return fail(ErrorCode::kCorrupt, "{} has {} bytes, {} from {} on were asked for", to_string(id), size,
                  range.bytes, range.offset);
    }
    return blob->second;
  }

  mutable std::mutex mutex_;
  std::map<BlobId, BlobBytes> blobs_;
};

}  // namespace

std::unique_ptr<Tier> make_memory_tier(std::uint64_t capacity_bytes, const Clock& clock, std::string name) {
  return std::make_unique<MemoryTier>(capacity_bytes, clock, std::move(name));
}

TierScheme memory_scheme() {
  return {.name = "memory",
          .meaning = "host memory, gone with the process",
          .size_required = true,
          .make = [](const TierSpec& spec, const Clock& clock) -> Result<std::unique_ptr<Tier>> {
            return make_memory_tier(spec.capacity_bytes, clock, spec.name);
          }};
}

}  // namespace shale
