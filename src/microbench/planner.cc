#include "microbench/planner.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <random>

#include "codec/method.h"
#include "core/quantile.h"
#include "placement/placement.h"
#include "placement/placement_state.h"

namespace shale::bench {
namespace {

constexpr double kBytesPerToken = 23'040;  // 30 layers, 3 KV heads, head dimension 64, fp16
constexpr double kPrefillTokensPerS = 500;
constexpr double kQuestionTokens = 24;

struct TierKindOf {
  double latency_s, bytes_per_s, share_of_bytes;
};
constexpr std::array<TierKindOf, 3> kTiers = {{{1e-5, 8e9, 0.05}, {1e-4, 1.5e9, 0.20}, {5e-3, 1e8, 0.40}}};

// The share of bytes left at keep 1, and how much quality a context loses by it at most.
struct MethodKind {
  double bytes, loss;
};
constexpr std::array<MethodKind, 4> kMethods = {{{1, 0}, {1, 0.6}, {0.53, 0.62}, {0.28, 0.7}}};

PlacedPrefix make_prefix(std::mt19937_64& random, std::size_t rank, std::size_t prefixes) {
  std::uniform_real_distribution<double> unit(0, 1);
  const double tokens = std::floor(256 * std::exp2(7 * unit(random)));
  const double sensitivity = unit(random);
  const double recompute_s = tokens / kPrefillTokensPerS * (1 + tokens / 16'384);
  PlacedPrefix prefix;
  prefix.id = rank;
  prefix.accesses = std::max<std::uint64_t>(1, prefixes / (rank + 1));
  prefix.frequency = static_cast<double>(prefix.accesses) * (0.5 + unit(random));
  prefix.last_access_s = -600 * unit(random) * static_cast<double>(rank + 1);  // the frequent were just used
  const double question_s = kQuestionTokens / kPrefillTokensPerS;
  for (std::uint32_t tier = 0; tier < kTiers.size(); ++tier) {
    for (std::uint32_t method = 0; method < kMethods.size(); ++method) {
      for (const double keep : kKeepGrid) {
        if (method == kFullMethod && keep < 1) continue;
        const double bytes = std::ceil(tokens * kBytesPerToken * keep * kMethods[method].bytes);
        const double load_s = kTiers[tier].latency_s + bytes / kTiers[tier].bytes_per_s;
        const double quantized = method > 1 ? 0.02 : 0;
        prefix.candidates.push_back(
            {.method = method,
             .keep = keep,
             .tier = tier,
             .bytes = static_cast<std::uint64_t>(bytes),
             .quality = 1 - sensitivity * (quantized + kMethods[method].loss * (1 - keep) * (1 - keep)),
             .ttft_s = question_s + std::min(load_s, recompute_s)});
      }
    }
  }
  prefix.current = static_cast<std::uint32_t>(prefix.candidates.size());
  prefix.candidates.push_back({.tier = kDropped, .ttft_s = question_s + recompute_s});
  return prefix;
}

Problem make_problem(std::size_t prefixes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Problem problem;
  double full_bytes = 0;
  for (std::size_t rank = 0; rank < prefixes; ++rank) {
    problem.prefixes.push_back(make_prefix(random, rank, prefixes));
    full_bytes += static_cast<double>(problem.prefixes.back().candidates[0].bytes);
  }
  for (const TierKindOf& tier : kTiers) {
    problem.tiers.push_back({static_cast<std::uint64_t>(tier.share_of_bytes * full_bytes)});
  }
  return problem;
}

Problem placed(Problem problem, const std::vector<std::uint32_t>& placement) {
  for (std::size_t e = 0; e < placement.size(); ++e) problem.prefixes[e].current = placement[e];
  return problem;
}

template <class Work>
double seconds_by(const Clock& clock, const Work& work) {
  const double start_s = clock.now_s();
  work();
  return clock.now_s() - start_s;
}

PlannerRow measure_planner(const Problem& empty, const Planner& planner, const Clock& clock) {
  std::vector<std::uint32_t> inserted;
  for (const PlacedPrefix& prefix : empty.prefixes) inserted.push_back(planner.insert(empty, prefix));
  const Problem overfull = placed(empty, inserted);

  PlannerRow row{.planner = std::string(planner.name()), .prefixes = empty.prefixes.size()};
  for (const PlacedPrefix& prefix : empty.prefixes) row.candidates += prefix.candidates.size();
  Plan demotion, promotion;
  row.demote_seconds = seconds_by(clock, [&] { demotion = planner.demote(overfull); });
  const Problem demoted = placed(empty, placement_after(overfull, demotion));
  row.promote_seconds = seconds_by(clock, [&] { promotion = planner.promote(demoted); });
  assert(demotion.feasible && promotion.feasible);
  row.utility = promotion.utility;
  return row;
}

// A placement and the changes that it is put through.
class Changes {
 public:
  Changes(const Problem& empty, const Planner& planner, const Clock& clock, std::uint64_t seed)
      : clock_(clock),
        random_(seed),
        backend_(empty.tiers.size()),
        state_(planner, {.alpha = empty.alpha}, empty.tiers, backend_),
        prefixes_(empty.prefixes) {
    row_.planner = planner.name();
    row_.prefixes = prefixes_.size();
    double sum = 0;
    for (std::size_t rank = 0; rank < prefixes_.size(); ++rank)
      popularity_.push_back(sum += 1 / static_cast<double>(1 + rank));
  }

  PlannerChangesRow insert() {
    begin("insert");
    for (const PlacedPrefix& prefix : prefixes_) {
      PlacedPrefix made = prefix;
      change([&] {
        slots_.push_back(state_.add(std::move(made), now_s_));
        state_.place(slots_.back());
      });
    }
    return end();
  }

  PlannerChangesRow mixed() {
    begin("mixed");
    for (std::size_t i = 0; i < prefixes_.size(); ++i) {
      now_s_ += 0.1;
      const std::size_t rank = popular();
      PlacedPrefix other;
      switch (random_() % 20) {
        case 0:  // it goes, and comes again
          other = prefixes_[rank];
          change([&] {
            state_.remove(slots_[rank]);
            slots_[rank] = state_.add(std::move(other), now_s_);
            state_.place(slots_[rank]);
          });
          break;
        case 1:  // its quality was measured anew
          other = state_.prefix(slots_[rank]);
          for (Candidate& candidate : other.candidates) candidate.quality *= candidate.method == kFullMethod ? 1 : 0.98;
          change([&] { state_.update(slots_[rank], std::move(other)); });
          break;
        case 2:
        case 3: {
          const double share = static_cast<double>(random_() % 2);
          change([&] { state_.in_pool(slots_[rank], share, now_s_); });
          break;
        }
        default:
          change([&] { state_.access(slots_[rank], now_s_); });
      }
    }
    return end();
  }

 private:
  template <class Call>
  void change(const Call& call) {
    seconds_.push_back(seconds_by(clock_, [&] {
      call();
      state_.settle();
    }));
  }

  std::size_t popular() {
    const double at = std::uniform_real_distribution<double>(0, popularity_.back())(random_);
    const auto found = std::ranges::lower_bound(popularity_, at) - popularity_.begin();
    return std::min(static_cast<std::size_t>(found), prefixes_.size() - 1);
  }

  void begin(std::string_view changes) {
    row_.changes = changes;
    row_.moves = backend_.moves();
    seconds_.clear();
  }

  PlannerChangesRow end() {
    const Problem problem = state_.problem(now_s_);
    double held = 0, nothing = 0;
    for (const PlacedPrefix& prefix : problem.prefixes) {
      held += utility(problem.alpha, prefix.frequency, prefix.candidates[prefix.current]);
      nothing += utility(problem.alpha, prefix.frequency, prefix.candidates.back());
    }
    PlannerChangesRow row = row_;
    row.count = seconds_.size();
    row.moves = backend_.moves() - row_.moves;
    row.share_of_bound = (held - nothing) / (utility_bound(problem) - nothing);
    for (const double seconds : seconds_) row.mean_seconds += seconds / static_cast<double>(seconds_.size());
    row.p99_seconds = quantile(seconds_, 0.99);
    return row;
  }

  const Clock& clock_;
  std::mt19937_64 random_;
  CountingBackend backend_;
  PlacementState state_;
  const std::vector<PlacedPrefix>& prefixes_;  // by rank of popularity
  std::vector<PlacementSlot> slots_;           // of each
  std::vector<double> popularity_;             // summed up
  std::vector<double> seconds_;
  double now_s_ = 0;
  PlannerChangesRow row_;
};

struct Contestant {
  std::string_view planner, shown_as;
  PlannerOptions options;
};
constexpr std::array<Contestant, 5> kContestants = {{{"shale", "shale", {}},
                                                     {"shale", "shale undivided", {.divide_by_bytes = false}},
                                                     {"lru", "lru", {}},
                                                     {"lfu", "lfu", {}},
                                                     {"fixed", "fixed", {.fixed_method_index = 2, .fixed_keep = 0.5}}}};

}  // namespace

std::vector<PlannerRow> planner_rows(const PlannerBenchOptions& options, const Clock& clock) {
  std::vector<PlannerRow> rows;
  for (const std::size_t prefixes : options.prefixes) {
    const Problem problem = make_problem(prefixes, options.seed);
    double nothing = 0, accesses = 0;
    for (const PlacedPrefix& prefix : problem.prefixes) {
      accesses += prefix.frequency;
      nothing += utility(problem.alpha, prefix.frequency, prefix.candidates[prefix.current]);
    }
    double bound = 0;
    const double bound_seconds = seconds_by(clock, [&] { bound = utility_bound(problem); });
    for (const Contestant& contestant : kContestants) {
      PlannerRow row = measure_planner(problem, *make_planner(contestant.planner, contestant.options).value(), clock);
      row.planner = contestant.shown_as;
      row.bound = bound;
      row.bound_seconds = bound_seconds;
      row.share_of_bound = (row.utility - nothing) / (bound - nothing);
      row.distance_per_access = (bound - row.utility) / accesses;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<PlannerChangesRow> planner_changes_rows(const PlannerBenchOptions& options, const Clock& clock) {
  std::vector<PlannerChangesRow> rows;
  for (const std::size_t prefixes : options.prefixes) {
    const Problem problem = make_problem(prefixes, options.seed);
    for (const Contestant& contestant : kContestants) {
      const auto planner = make_planner(contestant.planner, contestant.options).value();
      Changes changes(problem, *planner, clock, options.seed);
      for (PlannerChangesRow row : {changes.insert(), changes.mixed()}) {
        row.planner = contestant.shown_as;
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

}  // namespace shale::bench
