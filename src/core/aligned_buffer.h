// Bytes aligned for direct I/O and SIMD.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace shale {

inline constexpr std::size_t kIoAlignment = 4096;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

// A movable block of `size()` bytes at an address that is a multiple of 4,096; `capacity()`, at first the size rounded
// up to it, lets direct I/O transfer whole blocks. Contents start uninitialised. Throws std::bad_alloc.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, round_up(size ? size : 1, kIoAlignment)))),
        size_(size),
        capacity_(round_up(size ? size : 1, kIoAlignment)) {
    if (!data_) throw std::bad_alloc();
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  // Says that `size` ≤ capacity() of its bytes count; moves and frees nothing.
  void resize(std::size_t size) {
    assert(size <= capacity_);
    size_ = size;
  }
  // Working memory that is kept for its next use: so much of it, or more. Contents are lost where it grows.
  std::byte* at_least(std::size_t size) {
    if (capacity_ < size) *this = AlignedBuffer(size);
    return data();
  }
  float* floats(std::size_t count) { return reinterpret_cast<float*>(at_least(count * sizeof(float))); }
  bool empty() const { return size_ == 0; }
  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace shale
