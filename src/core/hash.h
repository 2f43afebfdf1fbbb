// 128-bit content hashes (XXH3): names of runs and extents, fingerprints, checksums. Not cryptographic: they guard
// against damage and accident, not against somebody who can write to the cache folder.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"

namespace shale {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  auto operator<=>(const Hash128&) const = default;
  // 32 lower-case hexadecimal digits.
  std::string hex() const;
  static Result<Hash128> parse(std::string_view hex);
};

Hash128 hash128(std::span<const std::byte> bytes);
// Shorter and chained: pass the hash of what came before as `seed`.
std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

// Feeds pieces one after another. Every `add` of a number or string also adds its length or width, so that
// ("ab", "c") and ("a", "bc") differ.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  Hasher& add(std::span<const std::byte> bytes);
  Hasher& add(std::string_view text);
  Hasher& add(std::uint64_t number);
  Hasher& add(const Hash128& hash);
  Hash128 finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shale

template <>
struct std::hash<shale::Hash128> {
  std::size_t operator()(const shale::Hash128& value) const noexcept { return value.low ^ value.high; }
};
