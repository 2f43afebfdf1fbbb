// A tier stores immutable blobs: manifests and parts of extents.
//
// The base class counts, checks capacity and measures; an implementation writes only the `…_impl` functions. Tiers that
// wrap another one (throttle) derive from TierWrapper.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/hash.h"
#include "tier/breaker.h"
#include "tier/speed_fit.h"

namespace shale {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};
// An object that has been unfinished for so long is abandoned: no write takes a day.
inline constexpr double kAbandonedAfterSeconds = 24 * 3600;

// A blob's name: the object it belongs to and which part of it. Part kManifest is written last and removed first, so
// that an object is either whole or absent.
struct BlobId {
  static constexpr std::uint32_t kManifest = 0xffffffffu;
  Hash128 object;
  std::uint32_t part = 0;
  auto operator<=>(const BlobId&) const = default;
};

// "0123…cdef/3" or "0123…cdef/manifest", for messages.
std::string to_string(const BlobId& id);

// Bytes [offset, offset + bytes) of a blob; by default all of them.
struct BlobRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = kUnlimited;
  bool whole() const { return offset == 0 && bytes == kUnlimited; }
};

// A blob's bytes, shared between who wrote them, who reads them and the tier that keeps them in memory. `capacity()`
// may exceed `size()` by more than padding: buffers are reused.
using BlobBytes = std::shared_ptr<const AlignedBuffer>;

// Counted since construction. A write that found its blob present counts as a write of no bytes.
struct TierStats {
  std::uint64_t reads = 0, read_bytes = 0, read_errors = 0, misses = 0;
  std::uint64_t writes = 0, written_bytes = 0, write_errors = 0, removals = 0;
  std::uint64_t refused_full = 0;
  double read_seconds = 0, write_seconds = 0;  // sum over successful operations of start to completion
  // The part of those seconds in which the tier was busy with earlier ones of the same direction, by speed_fit.h.
  double read_wait_seconds = 0, write_wait_seconds = 0;
};

// The queue before an operation of one direction that would start now.
struct TierQueue {
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;  // of a read whose size nobody told, as many as the mean of those before it
};

// The cost of an operation once its turn comes, fitted to recent ones: seconds = latency + bytes / bandwidth
// (speed_fit.h).
struct TierSpeed {
  double latency_s = 0;  // of a read
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  std::uint64_t samples = 0;  // of reads; 0: none here of late, and the latency is what was expected
  // Whether enough was read, or written, here of late to tell the bandwidth; else that is what was expected.
  bool read_measured = false, write_measured = false;
};

// How many objects to ask `parts_of` at once before anybody knows that any is there.
struct AskedAtOnce {
  std::size_t objects = 1;  // that may well be there; 1 where each costs the same again
  std::size_t guesses = 1;  // of which one in a dozen may be; fewer than `objects` where each costs money
};

// An operation in flight. Shared by who asked and who does it; dropping it does not cancel it. Must not outlive its
// tier. One thread may use it at a time.
class TierRead {
 public:
  virtual ~TierRead() = default;
  virtual bool ready() const = 0;
  // Blocks until done; the bytes on success. kNotFound: no such blob. kCorrupt: it is shorter than it was written or
  // its frame is damaged. kIo: the device failed. kBusy: the tier is not reachable. Call once.
  virtual Result<BlobBytes> take() = 0;
  // The blob's byte that the buffer begins with. A range may come within a buffer that holds more than it: the whole
  // blob where memory has it, whole blocks where direct I/O reads it. Valid once ready.
  virtual std::uint64_t first_byte() const { return 0; }
  // From start to completion; valid once ready.
  virtual double seconds() const = 0;
};

class TierWrite {
 public:
  virtual ~TierWrite() = default;
  virtual bool ready() const = 0;
  // Blocks until done. kFull, kIo, or kBusy where the tier is read-only or not reachable. May be called again.
  virtual Status wait() = 0;
  // Whether the blob is this write's own: false when it failed or found the blob there. Valid once ready.
  virtual bool created() const = 0;
  virtual double seconds() const = 0;
};

class Tier {
 public:
  virtual ~Tier() = default;
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // The tier's name in results, metrics and messages: "memory", "disk". Tiers of one cache have different names.
  const std::string& name() const { return name_; }
  virtual std::uint64_t capacity_bytes() const { return capacity_bytes_; }  // kUnlimited for no bound
  // Bytes that stored blobs occupy, padding included, and that writes in flight have reserved. If other processes write
  // to the same store, as last counted; blobs written meanwhile may count twice until then.
  virtual std::uint64_t used_bytes() const;
  // Bytes that a blob of `bytes` occupies here.
  virtual std::uint64_t stored_bytes(std::uint64_t bytes) const { return round_up(bytes ? bytes : 1, kIoAlignment); }
  // Empty when its speeds are the machine's own; else the name of the throttle that emulates other hardware.
  virtual std::string emulated() const { return {}; }
  // Another process holds the store for writing: reads and lists work, changes are kBusy.
  virtual bool read_only() const { return false; }
  // Why the tier cannot be reached, while its folder or server could not be opened yet; opening is tried again and
  // again. Until then it has no room, and every call is kBusy. Once open it stays open.
  virtual Status reachable() const { return {}; }
  // Whether it has no room yet because what lies there is still being counted.
  virtual bool counting() const { return reachable() && capacity_bytes() == 0 && capacity_bytes_ > 0; }
  // Whether what is stored outlives this process.
  virtual bool persistent() const = 0;
  // One line for people: where the bytes lie and by which kind of I/O.
  virtual std::string describe() const { return name_; }

  // Thread-safe, all of them. `read` and `write` start an operation and return; reads of several blobs started together
  // overlap. The others ask the store and may block as long as its latency.
  // `bytes_expected`: of the blob, for `reads_queued`; 0 where the caller does not know.
  std::shared_ptr<TierRead> read(const BlobId& id, std::uint64_t bytes_expected = 0);
  // Only the range is read, rounded to whole blocks, and counted. A blob that cannot hold it is kCorrupt. The frame of
  // a blob that is read in part is not verified.
  std::shared_ptr<TierRead> read(const BlobId& id, const BlobRange& range);
  // kFull (without writing) when capacity would be passed, or when the device is full; nothing half-written is ever
  // visible. Writing a blob that exists is a success that changes nothing.
  std::shared_ptr<TierWrite> write(const BlobId& id, BlobBytes bytes);
  // Removing an absent blob is a success. Reads in flight end well.
  Status remove(const BlobId& id);
  bool contains(const BlobId& id) const { return blob_bytes(id) != 0; }
  // Every blob, sorted. Temporary and foreign files are not listed.
  Result<std::vector<BlobId>> list() const;
  // The parts of one object, in no particular order, without listing the others; empty when it has none.
  Result<std::vector<std::uint32_t>> parts(const Hash128& object) const;
  // The same for several objects, in their order. A tier behind a network takes as long as for one.
  Result<std::vector<std::vector<std::uint32_t>>> parts_of(std::span<const Hash128> objects) const;
  virtual AskedAtOnce asked_at_once() const { return {}; }
  // Bytes that the blob occupies here, padding included; 0 when absent.
  std::uint64_t blob_bytes(const BlobId& id) const;
  // Seconds since the blob was written, or found there by a write; 0 when absent. Infinite if nobody but this tier can
  // write: then an object that is unfinished when it opens stays so.
  virtual double untouched_s(const BlobId&) const { return std::numeric_limits<double>::infinity(); }

  // Tells the tier of bytes that others have stored here, or, negative, removed, and that it has not counted.
  virtual void count_others(std::int64_t bytes);
  // Looks how much lies here where others write, too, and nobody tells: takes as long as listing all of it. False where
  // nobody does, or it could not. It is also called before a write is refused for lack of room.
  virtual bool count_again() { return false; }

  // A call that may hang where the tier does, from construction to destruction: whoever makes one that the tier does
  // not see, as into the same folder, tells of it so.
  class Call {
   public:
    explicit Call(const Tier& tier);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    const Tier& tier_;
    std::multiset<double>::const_iterator start_;
  };

  TierStats stats() const;
  // Says that a call has been in flight for ten seconds and four times as long as it should take; or why writing, or
  // reading, last failed for the device's own reasons (kIo, kFull), if it has not worked since: a read that finds
  // nothing has, a write that finds its blob there has written nothing.
  virtual std::optional<Error> trouble() const;
  // Whether a read or a write has been in flight for as long as that.
  virtual bool silent() const;
  // The breaker of a tier behind a network.
  virtual std::optional<BreakerState> breaker() const { return std::nullopt; }
  TierSpeed speed() const;
  virtual TierQueue reads_queued() const;
  virtual TierQueue writes_queued() const;
  // Seconds that a read of `bytes` would take from now, those before it included: latency + (bytes queued + bytes) /
  // bandwidth.
  double read_eta_s(std::uint64_t bytes) const;
  // Sets what an earlier process measured, in place of the first guess, for as long as a measurement counts.
  void expect(const TierSpeed& speed);
  // Writes, reads back and removes blobs of 256 KiB and 4 MiB to fill `speed()`; takes well under a second.
  Status measure();
  // When idle and not shared with other processes: used_bytes() is the sum of blob_bytes() over list(), within
  // capacity.
  Status check_integrity() const;

 protected:
  struct Options {
    std::string name;
    std::uint64_t capacity_bytes = kUnlimited;
    TierSpeed first_guess;
  };
  Tier(Options options, const Clock& clock);

  // Each ends, on any thread, in exactly one call of `finished_read` or `finished_write` with the same `start_s`.
  virtual std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double start_s) = 0;
  virtual std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) = 0;
  // The bytes that this freed; 0 when there was no such blob.
  virtual Result<std::uint64_t> remove_impl(const BlobId& id) = 0;
  virtual Result<std::vector<BlobId>> list_impl() const = 0;
  virtual Result<std::vector<std::uint32_t>> parts_impl(const Hash128& object) const = 0;
  virtual Result<std::vector<std::vector<std::uint32_t>>> parts_of_impl(std::span<const Hash128> objects) const;
  virtual std::uint64_t blob_bytes_impl(const BlobId& id) const = 0;

  // kCancelled, for what nobody waited to see the end of, counts as nothing but for the time that its `bytes_cancelled`
  // took of the tier.
  void finished_read(double start_s, double seconds, const Result<BlobBytes>& result, const BlobRange& range,
                     std::uint64_t bytes_cancelled = 0);
  // `bytes` as written; `stored`: false when the blob was there already or the write failed, so that the room reserved
  // for it is given back.
  void finished_write(double start_s, double seconds, std::uint64_t bytes, bool stored, const Status& status);
  // Replaces what is counted as stored, beside what writes in flight have reserved, by what `count` finds in the store.
  // Blobs written or removed meanwhile may count twice, but are never missed. Its error if it cannot be counted.
  Status count_stored(const std::function<Result<std::uint64_t>()>& count);

  const Clock& clock_;

 private:
  // The operations in flight in one direction, and their cost.
  struct Direction {
    Direction(double latency_s, double bytes_per_s) : fit(latency_s, bytes_per_s) {}
    void start(double start_s, std::uint64_t bytes_expected);
    void finish(double start_s, double end_s, std::uint64_t bytes, bool cancelled);

    SpeedFit fit;
    std::multimap<double, std::uint64_t> in_flight;  // bytes expected, by start
    std::uint64_t bytes_in_flight = 0;
  };
  bool reserve(std::uint64_t bytes);
  double silent_s(bool of_calls) const;
  std::uint64_t used_bytes_locked() const;
  Status measure_reads_and_writes(Hash128 object, std::uint32_t blobs, std::uint64_t bytes);

  const std::string name_;
  const std::uint64_t capacity_bytes_;
  mutable std::mutex mutex_;         // guards what follows
  std::int64_t stored_bytes_ = 0;    // negative while a blob is gone whose write has not been counted yet
  std::int64_t reserved_bytes_ = 0;  // by writes in flight
  std::int64_t written_bytes_ = 0;   // stored by all writes so far
  std::uint64_t counts_ = 0;         // of what is stored
  TierStats stats_;
  std::optional<Error> write_trouble_, read_trouble_;
  Direction reads_;
  Direction writes_;
  mutable std::multiset<double> calls_;  // starts of those in flight that are neither
};

}  // namespace shale
