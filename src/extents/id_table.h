// A hash table of 32-bit references to things that lie elsewhere and know their own hashes: 8 bytes a slot, no
// allocation a thing. Hashes must be mixed already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shale {

// Not thread-safe. Several references may have the same hash. References are below kRefEnd.
class IdTable {
 public:
  static constexpr std::uint32_t kRefEnd = 0xfffffffeu;

  std::size_t size() const { return size_; }
  std::size_t bytes() const { return slots_.capacity() * sizeof(std::uint64_t); }

  // Calls visit(ref), which returns true to stop, for every reference whose hash may be this one: its upper half is.
  template <class Visit>
  void find(std::uint64_t hash, const Visit& visit) const {
    if (slots_.empty()) return;
    for (std::size_t i = home(hash);; i = next(i)) {
      if (slots_[i] == kEmpty) return;
      if (slots_[i] >> 32 == hash >> 32 && ref_of(slots_[i]) != kGone && visit(ref_of(slots_[i]))) return;
    }
  }

  // `hash_of(ref)` tells the hash of any reference in the table.
  template <class HashOf>
  void insert(std::uint64_t hash, std::uint32_t ref, const HashOf& hash_of) {
    if ((used_ + 1) * 4 > slots_.size() * 3) grow(hash_of);
    place(hash, ref);
    ++size_;
  }

  // Requires that it is there.
  void erase(std::uint64_t hash, std::uint32_t ref) {
    std::size_t i = home(hash);
    while (slots_[i] != slot(hash, ref)) i = next(i);
    slots_[i] = slot(hash, kGone);
    --size_;
  }

 private:
  static constexpr std::uint64_t kEmpty = 0;
  static constexpr std::uint32_t kGone = kRefEnd;

  static std::uint64_t slot(std::uint64_t hash, std::uint32_t ref) { return (hash >> 32 << 32) | (ref + 1u); }
  static std::uint32_t ref_of(std::uint64_t slot) { return static_cast<std::uint32_t>(slot) - 1u; }
  std::size_t home(std::uint64_t hash) const { return hash & (slots_.size() - 1); }
  std::size_t next(std::size_t i) const { return (i + 1) & (slots_.size() - 1); }

  void place(std::uint64_t hash, std::uint32_t ref) {
    std::size_t i = home(hash);
    while (slots_[i] != kEmpty) i = next(i);
    slots_[i] = slot(hash, ref);
    ++used_;
  }

  template <class HashOf>
  void grow(const HashOf& hash_of) {
    std::size_t capacity = 16;
    while (capacity < 2 * (size_ + 1)) capacity *= 2;
    std::vector<std::uint64_t> old(capacity, kEmpty);
    old.swap(slots_);
    used_ = 0;
    for (const std::uint64_t taken : old) {
      if (taken != kEmpty && ref_of(taken) != kGone) place(hash_of(ref_of(taken)), ref_of(taken));
    }
  }

  std::vector<std::uint64_t> slots_;  // a power of two of them; hash's upper half, reference + 1
  std::size_t size_ = 0;
  std::size_t used_ = 0;  // slots that are not empty, those of erased references among them
};

}  // namespace shale
