// One forward step computes a token of every request that decodes, and chunks of prompts that are not done.
//
// Prompts of the highest priority go first; among them the one with the least left to compute, so that a prompt whose
// prefix was cached does not wait for a whole one. A prompt that came earlier is owed for its wait (kWaitWorth). A step
// has one prompt's chunk, or the rests of several short ones. These go before long ones that came earlier, but not in
// two steps one after another: the prompt whose turn it is has every other step at least, and a short rest waits for
// one chunk and for short ones, however many long prompts wait. A prompt of which more is on its way from a tier
// (cache/meeting.h) is computed when no other of its tenant and priority is to be.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "cache/cost_model.h"
#include "engine/chunk.h"
#include "engine/request_state.h"
#include "model/model.h"

namespace shale {

// One run's share of a step.
struct BatchPart {
  RequestState* run = nullptr;
  RequestState::Chunk chunk;
  std::uint32_t length = 0;    // of its sequence before the step
  Capture* capture = nullptr;  // what is stored of the prompt is watched

  bool prefills() const { return length < run->known(); }
  StepSequence::Role role() const;
  std::uint32_t prompt_tokens() const { return prefills() ? static_cast<std::uint32_t>(chunk.tokens.size()) : 0; }
};

// The parts as the model takes them: views, so the parts must stay in place meanwhile.
std::vector<StepSequence> step_sequences(std::span<const BatchPart> parts);

// Only prompts that came within 1 / kWaitWorth of a prompt's own computing time after it may overtake it; short ones
// always may.
inline constexpr double kWaitWorth = 0.25;
// A prompt is short that has no more tokens left. Several are computed in one step with no more in all, which takes
// hardly longer than that of one token.
inline constexpr std::uint32_t kShortTokens = 64;

// Not thread-safe. The costs outlive it.
class BatchBuilder {
 public:
  // `chunk_slowdown`, `chunk_step_s`: EngineOptions.
  BatchBuilder(std::uint32_t chunk_tokens, double chunk_slowdown, double chunk_step_s, const CostModel& costs)
      : chunk_tokens_(chunk_tokens),
        bounds_(chunk_slowdown > 0),
        chunks_(chunk_tokens, chunk_slowdown, chunk_step_s),
        costs_(costs) {}

  // Whether any running request can be computed, that is, is not loading.
  static bool any(std::span<const std::unique_ptr<RequestState>> running);
  // Shares of the running requests in the next step, in their order. Their blocks are not allocated yet, and nothing is
  // captured.
  std::vector<BatchPart> choose(std::span<const std::unique_ptr<RequestState>> running);
  // How long those who decode, so many, may wait for the next token.
  double gap_s(std::uint32_t decoding) const {
    return bounds_ ? chunks_.gap_s(decoding) : std::numeric_limits<double>::infinity();
  }
  // So many times as long as alone a prompt at this depth takes beside so many who decode.
  double prompt_slowdown(std::uint32_t decoding, std::uint32_t depth) const;
  // Work done since the last step takes this from the next step's time.
  void between(double seconds) { chunks_.between(seconds); }
  // Learns from a step what the next may hold. Seconds that computing prompts took of it, as far as can be told.
  double took(std::span<const BatchPart> parts, double seconds);

  // Tokens of a guest, at `depth`, by which a step becomes so many seconds longer in which so many decode; and by how
  // much those make it longer.
  double guest_tokens(std::uint32_t decoding, double seconds, std::uint32_t depth) const {
    return chunks_.guest_tokens(seconds, {.decoding = decoding}, depth);
  }
  double guest_seconds(std::uint32_t decoding, std::uint32_t tokens, std::uint64_t depth) const {
    const StepWork work{.decoding = decoding};
    return chunks_.seconds({decoding, tokens, depth}) - chunks_.seconds(work);
  }
  // Tokens, at `depth`, that a step of their own may have between two in which so many decode.
  std::uint32_t tokens_between(std::uint32_t decoding, std::uint32_t depth) const {
    return bounds_ ? chunks_.tokens_between(decoding, depth) : chunk_tokens_;
  }
  void took_between(std::uint32_t tokens, std::uint32_t depth, double seconds) {
    chunks_.took({.tokens = tokens, .depth = depth}, seconds);
  }
  // Seconds that a guest's tokens took of a step in which so many decoded.
  double took_with_guest(std::uint32_t decoding, std::uint32_t tokens, std::uint64_t depth, double seconds);

 private:
  // In the order of turns: of the tenant that was served least, of its highest priority, those first of
  // which nothing is on its way, the least `turn`.
  struct Prompt {
    double service = 0;
    int after = 0;
    bool meets = false;  // more of it is on its way
    double turn = 0;
    std::size_t index = 0;  // of those that run
    std::uint32_t tokens = 0;
    auto operator<=>(const Prompt&) const = default;
    auto rank() const { return std::tuple(service, after, meets); }  // within which short ones pass
  };
  double turn(const RequestState& run) const;
  static bool short_ones_first(std::span<Prompt> prompts);
  // Tokens for which a step with `work` has room, of a prompt that goes on at `depth`.
  std::uint32_t room_for(const StepWork& work, std::uint32_t depth) const;

  std::uint32_t chunk_tokens_;
  bool bounds_;
  ChunkControl chunks_;
  const CostModel& costs_;
  bool passed_ = false;  // short ones passed the one whose turn it was in the last step
};

}  // namespace shale
