// What fuzzers share.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "core/hash.h"

namespace shale {

inline void check(bool holds) {
  if (!holds) __builtin_trap();
}

// Gives a manifest the checksum that it would have, so that damage is seen by the checks behind it.
inline void seal(std::span<std::byte> manifest) {
  if (manifest.size() < 16) return;
  const Hash128 hash = hash128(manifest.first(manifest.size() - 16));
  std::memcpy(manifest.data() + manifest.size() - 16, &hash.high, 8);
  std::memcpy(manifest.data() + manifest.size() - 8, &hash.low, 8);
}

// A copy of a fuzzer's input, aligned for GGUF. Its memory ends with it, unlike an AlignedBuffer's, so that
// AddressSanitizer sees the first byte read beyond.
class Input {
 public:
  Input(const unsigned char* data, std::size_t size)
      : data_(static_cast<std::byte*>(::operator new(size, kAlignment))), size_(size) {
    if (size > 0) std::memcpy(data_.get(), data, size);
  }
  std::span<std::byte> bytes() { return {data_.get(), size_}; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* pointer) const { ::operator delete(pointer, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_;
};

}  // namespace shale
