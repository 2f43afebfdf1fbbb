#include "sim/simulated_meeting.h"

#include <algorithm>

namespace shale {
namespace {

constexpr std::ptrdiff_t kAskedAhead = 2;  // chunks

}  // namespace

SimulatedMeeting::SimulatedMeeting(std::span<const Range> ranges, const Hardware& hardware,
                                   std::vector<double>& tier_free_s)
    : hardware_(&hardware), tier_free_s_(&tier_free_s) {
  for (const Range& range : ranges) {
    for (std::uint64_t done = 0; done < range.tokens; done += kSimulatedMeetingChunk) {
      chunks_.push_back({.first_token = range.first_token + done,
                         .tokens = std::min(kSimulatedMeetingChunk, range.tokens - done),
                         .tier = range.tier});
    }
    end_ = range.first_token + range.tokens;
  }
  asked_ = chunks_.size();
}

double SimulatedMeeting::comes_s(const Chunk& chunk, double now_s) const {
  const SimulatedTier& tier = hardware_->tiers[chunk.tier];
  return std::max(0.0, (*tier_free_s_)[chunk.tier] - now_s) + tier.latency_s +
         static_cast<double>(chunk.tokens * hardware_->kv_bytes_per_token) / tier.read_bytes_per_s;
}

std::uint64_t SimulatedMeeting::ask(double now_s, std::uint64_t computed, const ComputeBacklog& engine) {
  std::uint64_t tokens = 0;
  while (asked_ > 0) {
    Chunk& next = chunks_[asked_ - 1];
    const auto in_flight = std::count_if(chunks_.begin() + static_cast<std::ptrdiff_t>(asked_), chunks_.end(),
                                         [&](const Chunk& chunk) { return chunk.there_at_s > now_s; });
    if (in_flight >= kAskedAhead || next.first_token < computed) break;
    const double comes_s = this->comes_s(next, now_s);
    const std::uint64_t until_its_end = next.first_token + next.tokens - computed;
    if (comes_s >= engine.compute_s + engine.slowdown * hardware_->prefill_s(until_its_end, computed)) break;
    next.there_at_s = now_s + comes_s;
    there_at_s_ = std::max(there_at_s_, next.there_at_s);
    (*tier_free_s_)[next.tier] = next.there_at_s - hardware_->tiers[next.tier].latency_s;
    tokens += next.tokens;
    --asked_;
  }
  return tokens;
}

std::uint64_t SimulatedMeeting::asked_of(std::uint32_t tier) const {
  std::uint64_t tokens = 0;
  for (std::size_t i = asked_; i < chunks_.size(); ++i) tokens += chunks_[i].tier == tier ? chunks_[i].tokens : 0;
  return tokens;
}

}  // namespace shale
