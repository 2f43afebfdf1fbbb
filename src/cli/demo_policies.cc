#include "cli/demo_policies.h"

#include <algorithm>
#include <cmath>

#include "codec/extent_layout.h"
#include "codec/sequence_view.h"
#include "profile/replay.h"

namespace shale {
namespace {

// Whose bandwidths and latencies a replay assumes.
enum class Hardware { kEmulated, kOwn };

class Replays {
 public:
  Replays(DemoStack& stack, std::span<const MetDocument> documents, std::span<const AnsweredRequest> requests)
      : stack_(stack), documents_(documents), requests_(requests) {
    for (const ProfileRow& row : documents.front().profile.rows) {
      if (methods_.empty() || methods_.back() != row.method) methods_.push_back(row.method);
    }
  }

  Result<DemoPolicy> run(const std::string& planner_name, const PlannerOptions& options = {}) const;
  Result<DemoPolicy> run_best_fixed() const;
  DemoPolicy as_it_ran() const;

 private:
  double read_s(const ProfileRow& row, std::size_t tier, Hardware hardware) const;
  double served_s(const MetDocument& met, const ProfileRow& row, double read_s) const;
  double expected_quality(const MetDocument& met, const ProfileRow& row) const;
  ReplayWorkload workload(Hardware hardware, bool press_lowest) const;
  ReplayDocument document(const MetDocument& met, Hardware hardware, bool press_lowest) const;

  DemoStack& stack_;
  std::span<const MetDocument> documents_;
  std::span<const AnsweredRequest> requests_;
  std::vector<Method> methods_;  // `full` first, as the planners' indices
};

double Replays::read_s(const ProfileRow& row, std::size_t tier, Hardware hardware) const {
  const TierSpeed speed = hardware == Hardware::kOwn ? stack_.tiers()[tier].own : stack_.cache().tiers()[tier]->speed();
  return speed.latency_s + static_cast<double>(row.bytes) / speed.read_bytes_per_s;
}

// Layer groups are read while the ones before them are decoded and computed: of the shorter of both, one group's share
// shows.
double Replays::served_s(const MetDocument& met, const ProfileRow& row, double read_s) const {
  const PageShape shape = stack_.engine().model().page_shape();
  const double groups = std::ceil(
      shape.layers / static_cast<double>(
                         suitable_layers_per_group(geometry_of(shape), row.method, met.tokens).value_or(shape.layers)));
  const double compute_s = row.decode_s + met.pool_s;
  return std::max(read_s, compute_s) + std::min(read_s, compute_s) / groups;
}

// What the planner goes by.
double Replays::expected_quality(const MetDocument& met, const ProfileRow& row) const {
  const auto known = stack_.cache().catalogue()->quality_for(met.profile.run, row.method, row.keep);
  return known ? known->expected : row.agreement;
}

ReplayDocument Replays::document(const MetDocument& met, Hardware hardware, bool press_lowest) const {
  ReplayDocument document;
  const std::vector<double> exact(met.profile.rows.front().held_out.size(), 1.0);
  for (std::size_t tier = 0; tier < stack_.tiers().size(); ++tier) {
    for (const ProfileRow& row : met.profile.rows) {
      if (tier + 1 == stack_.tiers().size() && !press_lowest && !row.method.is_full()) continue;
      const double read = read_s(row, tier, hardware);
      ReplayChoice choice;
      choice.candidate.method = static_cast<std::uint32_t>(std::ranges::find(methods_, row.method) - methods_.begin());
      choice.candidate.keep = row.keep;
      choice.candidate.tier = static_cast<std::uint32_t>(tier);
      choice.candidate.bytes = row.bytes;
      choice.candidate.quality = expected_quality(met, row);
      choice.candidate.ttft_s = std::min(read + row.decode_s, met.recompute_s);
      choice.ttft_s = std::min(served_s(met, row, read), met.recompute_s);
      for (const Divergence& one : row.held_out) choice.quality.push_back(one.agreement);
      document.choices.push_back(std::move(choice));
    }
  }
  document.choices.push_back({{.tier = kDropped, .ttft_s = met.recompute_s}, met.recompute_s, exact});
  return document;
}

ReplayWorkload Replays::workload(Hardware hardware, bool press_lowest) const {
  const CacheOptions& options = stack_.cache().options();
  ReplayWorkload workload;
  workload.alpha = options.alpha;
  workload.frequency_half_life_s = options.frequency_half_life_s;
  for (const DemoTier& tier : stack_.tiers()) workload.tiers.push_back({tier.capacity_bytes});
  for (const MetDocument& met : documents_) workload.documents.push_back(document(met, hardware, press_lowest));
  for (const AnsweredRequest& request : requests_) {
    workload.requests.push_back({request.document, request.question, request.at_s});
  }
  return workload;
}

Result<DemoPolicy> Replays::run(const std::string& planner_name, const PlannerOptions& options) const {
  SHALE_ASSIGN(const std::unique_ptr<Planner> planner, make_planner(planner_name, options));
  // Where the lowest tier has no bound, `shale` keeps everything there as it is.
  const bool press_lowest = planner_name != "shale";
  DemoPolicy policy;
  policy.name = planner_name;
  const ReplayWorkload work = workload(Hardware::kEmulated, press_lowest);
  const ReplayResult result = replay(work, *planner);
  for (std::size_t i = 0; i < result.served.size(); ++i) {
    const ReplayServed& served = result.served[i];
    const Candidate& candidate = work.documents[requests_[i].document].choices[served.choice].candidate;
    policy.ttft_s.push_back(served.ttft_s);
    policy.agreement += served.quality / static_cast<double>(result.served.size());
    ++(candidate.tier == kDropped ? policy.computed : policy.hits[candidate.tier]);
    policy.bytes_read += candidate.bytes;
  }
  std::ranges::copy(result.bytes_held, policy.bytes_held.begin());
  for (const ReplayServed& served : replay(workload(Hardware::kOwn, press_lowest), *planner).served) {
    policy.own_ttft_s.push_back(served.ttft_s);
  }
  return policy;
}

Result<DemoPolicy> Replays::run_best_fixed() const {
  DemoPolicy best;
  double best_worth = 0;
  for (const ProfileRow& row : documents_.front().profile.rows) {
    if (row.method.is_full()) continue;
    PlannerOptions options;
    options.fixed_method_index = static_cast<std::uint32_t>(std::ranges::find(methods_, row.method) - methods_.begin());
    options.fixed_keep = row.keep;
    SHALE_ASSIGN(DemoPolicy policy, run("fixed", options));
    double worth = stack_.cache().options().alpha * policy.agreement;
    for (const double ttft_s : policy.ttft_s) worth -= ttft_s / static_cast<double>(policy.ttft_s.size());
    if (!best.name.empty() && worth <= best_worth) continue;
    best_worth = worth;
    best = std::move(policy);
    best.name = fmt::format("fixed {}{}", row.method.text(), row.keep < 1 ? fmt::format("@{}", row.keep) : "");
  }
  return best;
}

DemoPolicy Replays::as_it_ran() const {
  DemoPolicy policy;
  policy.name = "shale";
  policy.replayed = false;
  for (const AnsweredRequest& request : requests_) {
    policy.ttft_s.push_back(request.ttft_s);
    policy.agreement += request.agreement / static_cast<double>(requests_.size());
    policy.bytes_read += request.bytes;
    const auto tier = std::ranges::find(stack_.tiers(), request.from, &DemoTier::name) - stack_.tiers().begin();
    ++(request.from == "computed" ? policy.computed : policy.hits[static_cast<std::size_t>(tier)]);
  }
  const Problem problem = stack_.cache().store().problem();
  for (const PlacedEntry& entry : problem.entries) {
    const Candidate& placed = entry.candidates[entry.current];
    if (placed.tier != kDropped) policy.bytes_held[placed.tier] += placed.bytes;
  }
  return policy;
}

}  // namespace

Result<std::vector<DemoPolicy>> compare_policies(DemoStack& stack, std::span<const MetDocument> documents,
                                                 std::span<const AnsweredRequest> requests) {
  const Replays replays(stack, documents, requests);
  std::vector<DemoPolicy> policies;
  for (const char* name : {"prefill", "lru"}) {
    SHALE_ASSIGN(DemoPolicy policy, replays.run(name));
    policies.push_back(std::move(policy));
  }
  SHALE_ASSIGN(DemoPolicy fixed, replays.run_best_fixed());
  SHALE_ASSIGN(DemoPolicy shale, replays.run("shale"));
  DemoPolicy ran = replays.as_it_ran();
  ran.own_ttft_s = shale.own_ttft_s;
  policies.push_back(std::move(fixed));
  policies.push_back(std::move(shale));
  policies.push_back(std::move(ran));
  return policies;
}

}  // namespace shale
