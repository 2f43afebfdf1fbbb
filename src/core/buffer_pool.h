// Buffers that are kept for their next use: fresh memory costs a page fault every 4 KiB, which takes longer than
// filling it, and those of several threads wait for one another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "core/aligned_buffer.h"

namespace shale {

// Thread-safe. Buffers may outlive the pool; they then free themselves.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // A buffer that so many takes in a row had no use for is given back: where sizes vary, what is kept follows them.
  static constexpr std::uint64_t kUnusedTakesMax = 256;
  // Keeps at most `spare_bytes_max` of unused buffers, the most recently used.
  static std::shared_ptr<BufferPool> make(std::size_t spare_bytes_max = std::size_t{64} << 20);

  // A buffer of that size and at least that capacity; contents are whatever was there. Throws std::bad_alloc.
  AlignedBuffer take(std::size_t size);
  // Comes to the pool when the last reference goes.
  std::shared_ptr<AlignedBuffer> share(AlignedBuffer buffer);
  std::shared_ptr<AlignedBuffer> get(std::size_t size) { return share(take(size)); }
  std::size_t spare_bytes() const;  // for tests

 private:
  explicit BufferPool(std::size_t spare_bytes_max) : spare_bytes_max_(spare_bytes_max) {}
  AlignedBuffer take_spare(std::size_t size);  // empty when none fits well
  void put_back(AlignedBuffer buffer);
  void drop_oldest();

  struct Spare {
    AlignedBuffer buffer;
    std::uint64_t since = 0;  // of takes
  };
  const std::size_t spare_bytes_max_;
  mutable std::mutex mutex_;
  std::deque<Spare> spare_;  // least recently used first
  std::size_t spare_bytes_ = 0;
  std::uint64_t takes_ = 0;
};

}  // namespace shale
