// What generators share. Private to the room.
#pragma once

#include <cmath>

#include "core/hash.h"
#include "trace/formats.h"
#include "trace/synthetic.h"

namespace shale {

inline constexpr std::uint64_t kTokensMax = std::uint64_t{1} << 24;  // of one text

// Texts are named by a number; their blocks have consecutive ids, so that runs stay short when they are written.
inline constexpr std::uint64_t kTextBlocksMax = kTokensMax;
inline std::uint64_t block_id(std::uint64_t text, std::uint64_t block) { return text * kTextBlocksMax + block; }

inline std::uint64_t draw_length(const LengthOptions& length, Random& random) {
  return random.log_normal(length.median, length.sigma, kTokensMax);
}

// The length that the `which`-th of a fixed set of texts has: always the same one, without keeping it.
inline std::uint64_t fixed_length(const LengthOptions& length, std::uint64_t seed, std::uint64_t which) {
  Random random(Hasher().add(seed).add(which).finish().low);
  return draw_length(length, random);
}

inline Status check_length(const LengthOptions& length, std::string_view what) {
  const bool good =
      length.median >= 1 && length.median <= static_cast<double>(kTokensMax) && length.sigma >= 0 && length.sigma <= 10;
  if (good) return {};
  return fail(ErrorCode::kInvalidArgument, "the length of {} has a median of 1 to {} tokens and a sigma of 0 to 10",
              what, kTokensMax);
}

inline Status check_load(const LoadOptions& load) {
  if (load.block_tokens > 0 && load.block_tokens <= kBlockTokensMax && load.requests > 0) return {};
  return fail(ErrorCode::kInvalidArgument, "a load has a request at least, in blocks of 1 to {} tokens",
              kBlockTokensMax);
}

inline Status check_popularity(std::uint64_t texts, double zipf, std::string_view what) {
  if (texts > 0 && texts <= kTokensMax && zipf >= 0 && zipf <= 10) return {};
  return fail(ErrorCode::kInvalidArgument, "there are 1 to {} {}, whose popularity has an exponent of 0 to 10",
              kTokensMax, what);
}

}  // namespace shale
