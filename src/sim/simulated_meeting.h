// A prefix that is computed from its front while its chunks are loaded from the back, as cache/meeting.h has it, on the
// trace's clock. Private to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "placement/load_or_compute.h"
#include "sim/hardware.h"

namespace shale {

// Tokens that are loaded at once, and computed before what a load has left to bring is looked at (CacheOptions,
// engine/request_state.cc).
inline constexpr std::uint64_t kSimulatedMeetingChunk = 256;

class SimulatedMeeting {
 public:
  // Exact tokens on a tier.
  struct Range {
    std::uint64_t first_token = 0, tokens = 0;
    std::uint32_t tier = 0;
  };

  // Of ranges, each of which begins where the one before ends. `tier_free_s` says when each tier has read what was
  // asked of it. Both outlive it.
  SimulatedMeeting(std::span<const Range> ranges, const Hardware& hardware, std::vector<double>& tier_free_s);

  // Asks for the next chunks from the back that come before computing would have passed them; it has come as far as
  // `computed`. How many tokens that are.
  std::uint64_t ask(double now_s, std::uint64_t computed, const ComputeBacklog& engine);
  // Computing ends here: the first token that is there or on its way.
  std::uint64_t limit() const { return asked_ < chunks_.size() ? chunks_[asked_].first_token : end_; }
  // When all that was asked for is there.
  double there_at_s() const { return there_at_s_; }
  // Where its last chunk ends.
  std::uint64_t end() const { return end_; }
  // Tokens that were asked for, of the tier.
  std::uint64_t asked_of(std::uint32_t tier) const;

 private:
  struct Chunk {
    std::uint64_t first_token = 0, tokens = 0;
    std::uint32_t tier = 0;
    double there_at_s = 0;
  };
  // From now on, behind what the tier reads already.
  double comes_s(const Chunk& chunk, double now_s) const;

  const Hardware* hardware_;
  std::vector<double>* tier_free_s_;
  std::vector<Chunk> chunks_;  // in order of tokens
  std::size_t asked_ = 0;      // chunks [asked_, …) were asked for
  std::uint64_t end_ = 0;
  double there_at_s_ = 0;
};

}  // namespace shale
