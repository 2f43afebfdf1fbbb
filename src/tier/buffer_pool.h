// Buffers that reads fill, kept for the next read: fresh memory costs a page fault every 4 KiB, which at the speed of a
// fast drive is a good part of the read.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "core/aligned_buffer.h"

namespace shale {

// Thread-safe. Buffers may outlive the pool; they then free themselves.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // Keeps at most `spare_bytes_max` of unused buffers, the most recently used.
  static std::shared_ptr<BufferPool> make(std::size_t spare_bytes_max);

  // Of that size, and of a capacity of at least as much; contents are whatever was there. Returns to the pool when the
  // last reference goes. Throws std::bad_alloc.
  std::shared_ptr<AlignedBuffer> get(std::size_t size);
  std::size_t spare_bytes() const;

 private:
  explicit BufferPool(std::size_t spare_bytes_max) : spare_bytes_max_(spare_bytes_max) {}
  AlignedBuffer take_spare(std::size_t size);  // empty when none fits well
  void put_back(AlignedBuffer buffer);

  const std::size_t spare_bytes_max_;
  mutable std::mutex mutex_;
  std::deque<AlignedBuffer> spare_;  // least recently used first
  std::size_t spare_bytes_ = 0;
};

}  // namespace shale
