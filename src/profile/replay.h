// The same requests under any planner, on a virtual clock, from costs that were measured: how other policies would have
// done without running them. Decisions are the planner's own code; nothing here touches a model, a tier or the time.
#pragma once

#include <cstdint>
#include <vector>

#include "placement/placement.h"

namespace shale {

// One way to keep a document, and what a request then sees.
struct ReplayChoice {
  Candidate candidate;          // what the planner is told: bytes, profiled quality, loading or recomputing time
  double ttft_s = 0;            // to the first token, the question's own computation included
  std::vector<double> quality;  // of the answer to each question
};

struct ReplayDocument {
  std::vector<ReplayChoice> choices;  // every configuration on every tier, the dropped one among them
};

struct ReplayRequest {
  std::size_t document = 0;
  std::size_t question = 0;  // index into ReplayChoice::quality
  double at_s = 0;           // never before the request it follows
};

struct ReplayWorkload {
  double alpha = 1;
  double frequency_half_life_s = 600;
  std::vector<TierRoom> tiers;  // fast to slow
  std::vector<ReplayDocument> documents;
  std::vector<ReplayRequest> requests;
};

struct ReplayServed {
  std::uint32_t choice = 0;  // index into the document's choices
  double ttft_s = 0;
  double quality = 1;
};

struct ReplayResult {
  std::vector<ReplayServed> served;       // one per request
  std::vector<std::uint64_t> bytes_held;  // per tier, after the last request; without uncompressed base copies
};

// Documents are met once, in order, each inserted as the planner says and the tiers relieved; then requests come. Each
// is served from where its document lies (computed and inserted anew where it was dropped) and followed by one round of
// PlacementState::settle, as in the cache. Moves take no time. Deterministic.
ReplayResult replay(const ReplayWorkload& workload, const Planner& planner);

}  // namespace shale
