// How a chunk of tokens is cut into forward steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "engine/step_model.h"

namespace shale {

// Tokens of the next step, of `left` ≥ 1 still to compute. The last step of a long chunk is not a few tokens alone,
// which would run as decoding does.
inline std::uint32_t next_chunk(std::uint32_t left, std::uint32_t chunk_tokens) {
  const std::uint32_t last_min = std::min(64u, chunk_tokens / 2);
  const std::uint32_t count = std::min(left, chunk_tokens);
  return left > count && left < count + last_min ? left - last_min : count;
}

// Sizes the chunks of prompts that are computed in one step with others' decoding: such a step is to take `slowdown`
// times as long as one of decoding alone, or `step_s`, whichever is longer, together with what is done between steps.
class ChunkControl {
 public:
  ChunkControl(std::uint32_t chunk_tokens, double slowdown, double step_s)
      : largest_(std::max(chunk_tokens, kSmallest)), slowdown_(slowdown), step_s_(step_s) {}

  // What was done since the last step, loading and storing: those who decode have waited for it.
  void between(double seconds) { between_s_ = seconds; }
  void took(const StepWork& work, double seconds) {
    model_.took(work, seconds);
    if (work.tokens > 0) {
      last_ = std::max<double>(work.tokens, last_ / 2);
      return;
    }
    const auto [at, fresh] = decode_s_.emplace(work.decoding, seconds);
    if (!fresh) at->second += (seconds - at->second) / 8;
  }
  // Notes a step whose tokens were a guest's (Engine::invite).
  void took_with_guest(const StepWork& work, double seconds) { model_.took(work, seconds); }
  // Tokens of a guest at `depth` by which a step with `work` becomes so many seconds longer.
  double guest_tokens(double seconds, const StepWork& work, std::uint32_t depth) const {
    return model_.tokens_in(model_.seconds(work) + seconds, work, depth);
  }
  double seconds(const StepWork& work) const { return model_.seconds(work); }
  // Tokens of a prompt that goes on at `depth`, beside `work`: 0 where there is no room; the first prompt always gets
  // some. Sizes are few: the model prepares for each that it meets first.
  std::uint32_t tokens(const StepWork& work, std::uint32_t depth) const {
    return sized(model_.tokens_in(gap_s(work.decoding) - between_s_, work, depth), work.tokens > 0);
  }
  // Seconds that each token of a prompt at `depth` takes in steps in which so many decode, without what is done between
  // steps; 0 while no such step was seen.
  double token_s(std::uint32_t decoding, std::uint32_t depth) const {
    if (last_ == 0) return 0;
    const double room = model_.tokens_in(gap_s(decoding), {.decoding = decoding}, depth);
    const auto tokens = static_cast<std::uint32_t>(std::clamp<double>(room, kSmallest, largest_));
    return model_.seconds({decoding, tokens, depth}) / tokens;
  }
  // Tokens at `depth` of a step of their own between two in which so many decode.
  std::uint32_t tokens_between(std::uint32_t decoding, std::uint32_t depth) const {
    return sized(model_.tokens_in(gap_s(decoding) - decode_s(decoding), {}, depth), false);
  }
  // How long those who decode, so many, may wait for the next token.
  double gap_s(std::uint32_t decoding) const { return std::max(slowdown_ * decode_s(decoding), step_s_); }
  // What decoding for so many sequences takes: as measured, or for the most below as many, which it is no less than.
  double decode_s(std::uint32_t sequences) const {
    const auto above = decode_s_.upper_bound(sequences);
    return above == decode_s_.begin() ? 0 : std::prev(above)->second;
  }

 private:
  std::uint32_t sized(double room, bool may_be_none) const {
    // Nobody has seen how long steps with many more tokens take.
    const double most = std::max(2 * last_, kFirst);
    const auto tokens = static_cast<std::uint32_t>(std::clamp(room, 0.0, std::min(most, largest_)));
    return std::max(may_be_none ? 0u : 1u, tokens / kSmallest) * kSmallest;
  }

  static constexpr std::uint32_t kSmallest = 8;
  static constexpr double kFirst = 16;  // tokens of the first chunk
  double largest_, slowdown_, step_s_;
  StepModel model_;
  std::map<std::uint32_t, double> decode_s_;  // of a step that only decoded, by sequences; smoothed
  double between_s_ = 0;
  double last_ = 0;  // tokens of the largest of the last chunks
};

}  // namespace shale
