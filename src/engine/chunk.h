// How a stretch of tokens is cut into forward steps.
#pragma once

#include <algorithm>
#include <cstdint>

namespace shale {

// Tokens of the next step, of `left` ≥ 1 still to compute. The last step of a long stretch is not a few tokens alone,
// which would run as decoding does.
inline std::uint32_t next_chunk(std::uint32_t left, std::uint32_t chunk_tokens) {
  const std::uint32_t last_min = std::min(64u, chunk_tokens / 2);
  const std::uint32_t count = std::min(left, chunk_tokens);
  return left > count && left < count + last_min ? left - last_min : count;
}

// Sizes the chunks of a prompt that are computed in one step with others' decoding, so that such a step takes about
// `slowdown` times as long as one of decoding alone: grown or shrunk by what the last steps took.
class ChunkControl {
 public:
  // Of a step that only decoded, for `sequences`.
  void decoded(std::uint32_t sequences, double seconds) {
    const double each = seconds / sequences;
    decode_s_ = decode_s_ > 0 ? decode_s_ + (each - decode_s_) / 8 : each;
  }
  // Of a step that decoded for `sequences` and computed a chunk of `tokens`.
  void mixed(std::uint32_t sequences, std::uint32_t tokens, double seconds, double slowdown) {
    if (decode_s_ == 0) return;
    const double scale = std::clamp(slowdown * decode_s_ * sequences / seconds, 0.5, 1.5);
    tokens_ = std::clamp(tokens * scale, double{kSmallest}, 65536.0);
  }
  std::uint32_t tokens(std::uint32_t chunk_tokens) const {
    return std::clamp(static_cast<std::uint32_t>(tokens_), std::min(kSmallest, chunk_tokens), chunk_tokens);
  }

 private:
  static constexpr std::uint32_t kSmallest = 8;
  double decode_s_ = 0;  // of a step, per sequence; smoothed
  double tokens_ = 32;
};

}  // namespace shale
