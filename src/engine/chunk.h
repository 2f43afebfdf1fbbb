// How a stretch of tokens is cut into forward steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace shale {

// Tokens of the next step, of `left` ≥ 1 still to compute. The last step of a long stretch is not a few tokens alone,
// which would run as decoding does.
inline std::uint32_t next_chunk(std::uint32_t left, std::uint32_t chunk_tokens) {
  const std::uint32_t last_min = std::min(64u, chunk_tokens / 2);
  const std::uint32_t count = std::min(left, chunk_tokens);
  return left > count && left < count + last_min ? left - last_min : count;
}

// Sizes the chunks of prompts that are computed in one step with others' decoding, by what the last steps took: such a
// step is to take `slowdown` times as long as one of decoding alone, or `step_s`, whichever is longer, together with
// what is done between steps.
class ChunkControl {
 public:
  ChunkControl(std::uint32_t chunk_tokens, double slowdown, double step_s)
      : largest_(std::max(chunk_tokens, kSmallest)), slowdown_(slowdown), step_s_(step_s) {}
  // Of a step that only decoded, for `sequences`.
  void decoded(std::uint32_t sequences, double seconds) {
    const auto [at, fresh] = decode_s_.emplace(sequences, seconds);
    if (!fresh) at->second += (seconds - at->second) / 8;
  }
  // What was done since the last step, loading and storing: those who decode have waited for it.
  void between(double seconds) { between_s_ = seconds; }
  // Of a step that decoded for `sequences` and computed `tokens` of prompts.
  void mixed(std::uint32_t sequences, std::uint32_t tokens, double seconds) {
    const double target_s = this->target_s(sequences), left_s = target_s - between_s_;
    // The rest of a prompt says nothing of whole chunks, nor does one for which hardly any time was left.
    if (target_s <= 0 || left_s < target_s / 2 || tokens < this->tokens(sequences)) return;
    const double scale = std::clamp(left_s / seconds, 0.5, 1.5);
    // Halfway, as one step's time says little.
    tokens_ = std::clamp(tokens_ * (1 + scale) / 2, double{kSmallest}, largest_);
  }
  // Beside so many who decode. In few sizes: the model prepares for each that it meets first.
  std::uint32_t tokens(std::uint32_t sequences) const {
    const double for_chunks_s = target_s(sequences) - decode_s(sequences);
    const double share = for_chunks_s > 0 ? std::max(0.0, 1 - between_s_ / for_chunks_s) : 1;
    return std::max(1u, static_cast<std::uint32_t>(tokens_ * share) / kSmallest) * kSmallest;
  }
  // What decoding for so many sequences takes: as measured, or for the most below as many, which it is no less than.
  double decode_s(std::uint32_t sequences) const {
    const auto above = decode_s_.upper_bound(sequences);
    return above == decode_s_.begin() ? 0 : std::prev(above)->second;
  }

 private:
  double target_s(std::uint32_t sequences) const { return std::max(slowdown_ * decode_s(sequences), step_s_); }

  static constexpr std::uint32_t kSmallest = 8;
  double largest_, slowdown_, step_s_;
  std::map<std::uint32_t, double> decode_s_;  // of a step, by sequences; smoothed
  double tokens_ = kSmallest;                 // where nothing is done between steps
  double between_s_ = 0;
};

}  // namespace shale
