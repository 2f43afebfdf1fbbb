#include "profile/replay.h"

#include <utility>

#include "placement/placement_state.h"

namespace shale {
namespace {

class Replay {
 public:
  Replay(const ReplayWorkload& workload, const Planner& planner)
      : workload_(workload),
        backend_(workload.tiers.size()),
        state_(planner, {.alpha = workload.alpha, .half_life_s = workload.frequency_half_life_s}, workload.tiers,
               backend_) {}

  ReplayResult run();

 private:
  void meet(std::size_t document);
  ReplayServed serve(const ReplayRequest& request);

  const ReplayWorkload& workload_;
  CountingBackend backend_;
  PlacementState state_;
  std::vector<PlacementSlot> slots_;  // by document
};

void Replay::meet(std::size_t document) {
  PlacedEntry entry{.id = document, .candidates = {}};
  for (const ReplayChoice& choice : workload_.documents[document].choices) {
    if (choice.candidate.tier == kDropped) entry.current = static_cast<std::uint32_t>(entry.candidates.size());
    entry.candidates.push_back(choice.candidate);
  }
  slots_.push_back(state_.add(std::move(entry), 0));
  state_.place(slots_.back());
}

ReplayServed Replay::serve(const ReplayRequest& request) {
  const PlacementSlot slot = slots_[request.document];
  const std::uint32_t found = state_.entry(slot).current;
  const ReplayChoice& choice = workload_.documents[request.document].choices[found];
  state_.access(slot, request.at_s);
  if (choice.candidate.tier == kDropped) state_.place(slot);
  state_.settle();
  return {found, choice.ttft_s, choice.quality[request.question]};
}

ReplayResult Replay::run() {
  ReplayResult result;
  for (std::size_t i = 0; i < workload_.documents.size(); ++i) meet(i);
  while (state_.settle()) {
  }
  for (const ReplayRequest& request : workload_.requests) result.served.push_back(serve(request));
  for (std::uint32_t tier = 0; tier < workload_.tiers.size(); ++tier) {
    result.bytes_held.push_back(state_.used_bytes(tier));
  }
  return result;
}

}  // namespace

ReplayResult replay(const ReplayWorkload& workload, const Planner& planner) { return Replay(workload, planner).run(); }

}  // namespace shale
