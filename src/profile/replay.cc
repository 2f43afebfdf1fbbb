#include "profile/replay.h"

#include <algorithm>
#include <cassert>

#include "core/clock.h"

namespace shale {
namespace {

class Replay {
 public:
  Replay(const ReplayWorkload& workload, const Planner& planner) : workload_(workload), planner_(planner) {
    problem_.alpha = workload.alpha;
    problem_.tiers = workload.tiers;
  }

  ReplayResult run();

 private:
  void meet(std::size_t document);
  void insert(std::size_t document);
  void plan();
  void apply(const Plan& plan);
  ReplayServed serve(const ReplayRequest& request);
  void see_use(std::size_t document);

  const ReplayWorkload& workload_;
  const Planner& planner_;
  VirtualClock clock_;
  Problem problem_;  // entries as documents
  std::vector<Frequency> frequencies_;
};

void Replay::see_use(std::size_t document) {
  PlacedEntry& entry = problem_.entries[document];
  const Frequency& frequency = frequencies_[document];
  entry.frequency = frequency.value(clock_.now_s());
  entry.last_access_s = frequency.last_access_s();
  entry.accesses = frequency.count();
}

void Replay::apply(const Plan& plan) {
  for (const Move& move : plan.moves) problem_.entries[move.entry].current = move.to;
}

void Replay::insert(std::size_t document) {
  PlacedEntry& entry = problem_.entries[document];
  entry.current = planner_.insert(problem_, entry);
  apply(planner_.relieve(problem_));
}

void Replay::plan() {
  for (std::size_t i = 0; i < problem_.entries.size(); ++i) see_use(i);
  const Plan relief = planner_.relieve(problem_);
  apply(relief.moves.empty() ? planner_.promote(problem_) : relief);
}

void Replay::meet(std::size_t document) {
  PlacedEntry& entry = problem_.entries.emplace_back();
  entry.id = document;
  for (const ReplayChoice& choice : workload_.documents[document].choices) {
    if (choice.candidate.tier == kDropped) entry.current = static_cast<std::uint32_t>(entry.candidates.size());
    entry.candidates.push_back(choice.candidate);
  }
  frequencies_.emplace_back(workload_.frequency_half_life_s).access(clock_.now_s());
  see_use(document);
  insert(document);
}

ReplayServed Replay::serve(const ReplayRequest& request) {
  assert(request.at_s >= clock_.now_s());
  clock_.sleep_until_s(request.at_s);
  frequencies_[request.document].access(clock_.now_s());
  see_use(request.document);
  const std::uint32_t current = problem_.entries[request.document].current;
  const ReplayChoice& choice = workload_.documents[request.document].choices[current];
  if (choice.candidate.tier == kDropped) insert(request.document);
  plan();
  return {current, choice.ttft_s, choice.quality[request.question]};
}

ReplayResult Replay::run() {
  ReplayResult result;
  for (std::size_t i = 0; i < workload_.documents.size(); ++i) meet(i);
  plan();
  for (const ReplayRequest& request : workload_.requests) result.served.push_back(serve(request));
  result.bytes_held.resize(workload_.tiers.size());
  for (const PlacedEntry& entry : problem_.entries) {
    const Candidate& placed = entry.candidates[entry.current];
    if (placed.tier != kDropped) result.bytes_held[placed.tier] += placed.bytes;
  }
  return result;
}

}  // namespace

ReplayResult replay(const ReplayWorkload& workload, const Planner& planner) { return Replay(workload, planner).run(); }

}  // namespace shale
