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
  explicit ChunkControl(std::uint32_t chunk_tokens) : largest_(std::max(chunk_tokens, kSmallest)) {}
  // Of a step that only decoded, for `sequences`.
  void decoded(std::uint32_t sequences, double seconds) {
    const double each = seconds / sequences;
    decode_s_ = decode_s_ > 0 ? decode_s_ + (each - decode_s_) / 8 : each;
  }
  // Of a step that decoded for `sequences` and computed a chunk of `tokens`.
  void mixed(std::uint32_t sequences, std::uint32_t tokens, double seconds, double slowdown) {
    if (decode_s_ == 0 || tokens < this->tokens()) return;  // the rest of a prompt says nothing of whole chunks
    const double scale = std::clamp(slowdown * decode_s_ * sequences / seconds, 0.5, 1.5);
    // Halfway, as one step's time says little.
    tokens_ = std::clamp(tokens_ * (1 + scale) / 2, double{kSmallest}, largest_);
  }
  // In few sizes: the model prepares for each that it meets first.
  std::uint32_t tokens() const { return static_cast<std::uint32_t>(tokens_) / kSmallest * kSmallest; }

 private:
  static constexpr std::uint32_t kSmallest = 8;
  double largest_;
  double decode_s_ = 0;  // of a step, per sequence; smoothed
  double tokens_ = kSmallest;
};

}  // namespace shale
