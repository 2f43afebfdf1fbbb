#include "core/hash.h"

#include "core/parsing.h"

#define XXH_STATIC_LINKING_ONLY  // for the size of its state
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // takes the widest vectors that the processor has; the sums are the same
#endif

namespace shale {

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Result<Hash128> Hash128::parse(std::string_view hex) {
  Hash128 hash;
  const auto parse_half = [&](std::size_t at, std::uint64_t& half) {
    const auto parsed = parse_integer<std::uint64_t>(hex.substr(at, 16), 16);
    half = parsed.value_or(0);
    return parsed.has_value();
  };
  if (hex.size() != 32 || !parse_half(0, hash.high) || !parse_half(16, hash.low)) {
    return fail(ErrorCode::kInvalidArgument, "'{}' is not a key: 32 hexadecimal digits are expected", hex);
  }
  return hash;
}

Hash128 hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

struct Hasher::State {
  XXH3_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;

Hasher& Hasher::add(std::span<const std::byte> bytes) {
  add(static_cast<std::uint64_t>(bytes.size()));
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
  return *this;
}

Hasher& Hasher::add(std::string_view text) { return add(std::as_bytes(std::span(text))); }

Hasher& Hasher::add(std::uint64_t number) {
  XXH3_128bits_update(&state_->xxh, &number, sizeof number);
  return *this;
}

Hasher& Hasher::add(const Hash128& hash) { return add(hash.high).add(hash.low); }

Hash128 Hasher::finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return {hash.high64, hash.low64};
}

}  // namespace shale
