// A tier stores immutable blobs: manifests and chunks of stored objects.
//
// The base class counts, checks capacity and measures; an implementation writes only the `…_impl` functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/hash.h"

namespace shale {

// A blob's name: the object it belongs to and which part of it. Part kManifest is written last and removed first, so
// that an object is either whole or absent.
struct BlobId {
  static constexpr std::uint32_t kManifest = 0xffffffffu;
  Hash128 object;
  std::uint32_t part = 0;
  auto operator<=>(const BlobId&) const = default;
};

enum class TierKind { kMemory, kDisk, kRemote };
std::string_view to_string(TierKind kind);  // "memory", "disk", "remote"

// Counted since construction. A snapshot is consistent per field, not across fields.
struct TierStats {
  std::uint64_t reads = 0, read_bytes = 0, read_errors = 0, misses = 0;
  std::uint64_t writes = 0, written_bytes = 0, write_errors = 0, removals = 0;
  std::uint64_t refused_full = 0;
  double read_seconds = 0, write_seconds = 0;  // sum over operations of start to completion
};

// What a read costs here, fitted to recent reads: seconds = latency + bytes / bandwidth.
struct TierSpeed {
  double latency_s = 0;
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  std::uint64_t samples = 0;  // 0: never measured, the values are the implementation's first guess
};

// An operation under way. Shared by who asked and who does it; dropping it does not cancel it.
class TierRead {
 public:
  virtual ~TierRead() = default;
  virtual bool ready() const = 0;
  // Blocks until done; the bytes on success. kNotFound when absent; kIo. Call once.
  virtual Result<AlignedBuffer> take() = 0;
};

class TierWrite {
 public:
  virtual ~TierWrite() = default;
  virtual bool ready() const = 0;
  virtual Status wait() = 0;
};

class Tier {
 public:
  virtual ~Tier() = default;

  const std::string& name() const { return name_; }  // "memory", "disk", "remote"
  TierKind kind() const { return kind_; }
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }  // ~0 for unlimited
  std::uint64_t used_bytes() const;                                  // what stored blobs occupy, padding included
  // Empty when the figures are the machine's own; else the name of the throttle that emulates other hardware.
  virtual std::string emulated() const { return {}; }
  virtual bool read_only() const { return false; }

  // Thread-safe, all of them. Reads of several blobs started together overlap.
  std::shared_ptr<TierRead> read(const BlobId& id);
  // kFull (without writing) when capacity would be passed or the device is full; nothing half-written is ever visible.
  // Writing a blob that exists is a success that changes nothing.
  std::shared_ptr<TierWrite> write(const BlobId& id, std::shared_ptr<const AlignedBuffer> bytes);
  Status remove(const BlobId& id);
  bool contains(const BlobId& id) const;
  // Every blob, sorted. Temporary and foreign files are not listed.
  Result<std::vector<BlobId>> list() const;
  std::uint64_t blob_bytes(const BlobId& id) const;  // 0 when absent

  TierStats stats() const;
  TierSpeed speed() const;
  // Writes, reads back and removes blobs of 256 KiB and 4 MiB to fill `speed()`; takes well under a second.
  Status measure();

 protected:
  Tier(std::string name, TierKind kind, std::uint64_t capacity_bytes, const Clock& clock);
  // Implementations call these when an operation completes.
  void finished_read(std::uint64_t bytes, double seconds, const Status& status);
  void finished_write(const BlobId& id, std::uint64_t bytes, double seconds, const Status& status);

  virtual std::shared_ptr<TierRead> read_impl(const BlobId& id) = 0;
  virtual std::shared_ptr<TierWrite> write_impl(const BlobId& id, std::shared_ptr<const AlignedBuffer> bytes) = 0;
  virtual Status remove_impl(const BlobId& id) = 0;
  virtual bool contains_impl(const BlobId& id) const = 0;
  virtual Result<std::vector<BlobId>> list_impl() const = 0;
  virtual std::uint64_t blob_bytes_impl(const BlobId& id) const = 0;

  const Clock& clock_;

 private:
  std::string name_;
  TierKind kind_;
  std::uint64_t capacity_bytes_;
  mutable std::mutex mutex_;
  TierStats stats_;
};

}  // namespace shale
