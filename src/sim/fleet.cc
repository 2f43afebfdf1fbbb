#include "sim/fleet.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "sim/contexts.h"
#include "sim/tiered_engine.h"

namespace shale {
namespace {

constexpr std::uint32_t kImbalanceMax = 4;
constexpr std::uint32_t kNoEngine = ~std::uint32_t{0};

struct Run {
  double arrival_s = 0;
  Prompt prompt;
  std::optional<Served> served = {};  // what it is served from, once it has begun
  double remaining_s = 0;             // while it waits: to its first token, as estimated until it begins
  double end_s = 0;                   // while it is served
  double step_s = 0;                  // of each of its steps
  std::uint64_t order = 0;            // in which they were served, or went on
};

struct Seat {
  std::unique_ptr<TieredEngine> engine;
  std::deque<Run> waiting = {};  // in order of arrival; srpt: and those that were preempted
  std::vector<Run> served = {};  // now
  double waiting_s = 0;          // fcfs: that those who wait will take, as estimated
  std::uint64_t sent = 0;

  std::size_t load() const { return waiting.size() + served.size(); }
};

double turn(const Run& waiting) { return simulated_turn(waiting.remaining_s, waiting.arrival_s); }
double turn(const Run& served, double now_s) { return simulated_turn(served.end_s - now_s, served.arrival_s); }

// How long a request that is served keeps its server until the step that it is in ends.
double rest_of_step_s(const Run& run, double now_s) {
  constexpr double kRounding = 1e-6;  // of a step
  const double left_s = run.end_s - now_s;
  return run.step_s > 0 ? std::max(0.0, left_s - std::floor(left_s / run.step_s + kRounding) * run.step_s) : left_s;
}

class Fleet {
 public:
  Fleet(const Trace& trace, const FleetOptions& options, const TieredSetup& setup)
      : trace_(trace),
        options_(options),
        contexts_(trace),
        store_(contexts_.all().size(), options.network_bytes_per_s, options.store_bytes_max),
        seats_(options.engines),
        sent_to_(contexts_.all().size(), kNoEngine) {
    for (Seat& seat : seats_) {
      seat.engine =
          std::make_unique<TieredEngine>(contexts_, options_.engine, setup, options.shares ? &store_ : nullptr);
    }
  }

  FleetResult run(const KeepGoing& keep_going) {
    for (const TraceRequest& request : trace_.requests) {
      if (keep_going && arrived_ % kRequestsBetweenLooks == 0 && !keep_going(arrived_)) break;
      const double now_s = request.arrival_s / options_.speed;
      end_until(now_s);
      arrive({.arrival_s = now_s, .prompt = contexts_.prompt(trace_, request)}, now_s);
    }
    end_until(std::numeric_limits<double>::infinity());
    return result();
  }

 private:
  // When the last step of a request ends, or one after which it may be preempted; in which order begun, by which
  // engine.
  using End = std::pair<double, std::pair<std::uint64_t, std::uint32_t>>;

  bool shortest_first() const { return options_.scheduling == EngineScheduling::kSrpt; }
  bool full(const Seat& seat) const {
    return options_.engine.servers > 0 && seat.served.size() == options_.engine.servers;
  }
  void end_until(double now_s);
  void arrive(Run request, double now_s);
  void serve(std::uint32_t index, Run run, double now_s);
  void serve_next(std::uint32_t index, double now_s);
  void turn_after_steps(std::uint32_t index, double now_s);
  void end_of_step(std::uint32_t index, std::vector<Run>::iterator run, double now_s);
  void answered(std::uint32_t index, const Run& run);
  std::uint32_t choose(const Prompt& prompt, double now_s) const;
  std::uint32_t least_loaded() const;
  std::uint32_t by_prefix(std::span<const ContextId> path) const;
  std::uint32_t by_overlap(std::span<const ContextId> path) const;
  double first_token_s(const Seat& seat, const Prompt& prompt, double now_s) const;
  FleetResult result();

  const Trace& trace_;
  const FleetOptions& options_;
  const Contexts contexts_;
  SharedStore store_;
  std::vector<Seat> seats_;
  std::vector<std::uint32_t> sent_to_;  // by ContextId: the engine that was sent it last
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::uint64_t arrived_ = 0, begun_ = 0;
  double busy_s_ = 0, done_s_ = 0;
  std::vector<double> ttfts_;
};

// Whoever is done by then frees a place for the next.
void Fleet::end_until(double now_s) {
  while (!ends_.empty() && ends_.top().first <= now_s) {
    const auto [end_s, place] = ends_.top();
    const auto [order, index] = place;
    ends_.pop();
    Seat& seat = seats_[index];
    const auto run = std::ranges::find(seat.served, order, &Run::order);
    if (run == seat.served.end()) continue;  // it was preempted
    if (end_s < run->end_s) {
      end_of_step(index, run, end_s);
      continue;
    }
    const Run done = std::move(*run);
    seat.served.erase(run);
    answered(index, done);
    serve_next(index, end_s);
    if (shortest_first()) turn_after_steps(index, end_s);
  }
}

// The server of a request turns to whoever is before it now.
void Fleet::end_of_step(std::uint32_t index, std::vector<Run>::iterator run, double now_s) {
  Seat& seat = seats_[index];
  run->remaining_s = run->end_s - now_s;
  if (std::ranges::none_of(seat.waiting, [&](const Run& each) { return turn(each) < turn(*run); })) return;
  seat.waiting.push_back(std::move(*run));
  seat.served.erase(run);
  serve_next(index, now_s);
}

// A place is free.
void Fleet::serve_next(std::uint32_t index, double now_s) {
  Seat& seat = seats_[index];
  if (seat.waiting.empty()) return;
  auto next = seat.waiting.begin();
  if (shortest_first()) {
    next = std::ranges::min_element(seat.waiting, {}, [](const Run& each) { return turn(each); });
  }
  Run run = std::move(*next);
  seat.waiting.erase(next);
  seat.waiting_s -= run.remaining_s;
  serve(index, std::move(run), now_s);
}

void Fleet::arrive(Run request, double now_s) {
  const std::uint32_t index = choose(request.prompt, now_s);
  Seat& seat = seats_[index];
  ++arrived_;
  ++seat.sent;
  for (const ContextId id : request.prompt.path) sent_to_[id] = index;
  if (!full(seat)) return serve(index, std::move(request), now_s);
  request.remaining_s = seat.engine->estimate_s(request.prompt, now_s);
  seat.waiting_s += request.remaining_s;
  seat.waiting.push_back(std::move(request));
  if (shortest_first()) turn_after_steps(index, now_s);
}

// It begins, or goes on.
void Fleet::serve(std::uint32_t index, Run run, double now_s) {
  Seat& seat = seats_[index];
  if (!run.served) {
    run.served = seat.engine->look_up(run.prompt, now_s);
    run.remaining_s = run.served->seconds;
    busy_s_ += run.remaining_s;
    const double steps = std::ceil(static_cast<double>(run.served->computed_tokens) / options_.step_tokens);
    run.step_s = run.remaining_s / std::max(steps, 1.0);
  }
  run.end_s = now_s + run.remaining_s;
  run.order = begun_++;
  ends_.push({run.end_s, {run.order, index}});
  seat.served.push_back(std::move(run));
}

// From the end of the step that it is in, the server of whoever should wait for another is that one's.
void Fleet::turn_after_steps(std::uint32_t index, double now_s) {
  const Seat& seat = seats_[index];
  double first = std::numeric_limits<double>::infinity();
  for (const Run& each : seat.waiting) first = std::min(first, turn(each));
  for (const Run& run : seat.served) {
    const double step_ends_s = now_s + rest_of_step_s(run, now_s);
    if (first < turn(run, now_s) && step_ends_s < run.end_s) ends_.push({step_ends_s, {run.order, index}});
  }
}

// What it computed is there for others, and for those that have not begun.
void Fleet::answered(std::uint32_t index, const Run& run) {
  Seat& seat = seats_[index];
  seat.engine->finish(run.prompt.path, *run.served, run.end_s, true);
  seat.engine->answered(run.prompt, *run.served, run.end_s, true);
  ttfts_.push_back(run.end_s - run.arrival_s);
  done_s_ = std::max(done_s_, run.end_s);
  if (!shortest_first()) return;
  for (Run& each : seat.waiting) {
    if (!each.served) each.remaining_s = seat.engine->estimate_s(each.prompt, run.end_s);
  }
}

std::uint32_t Fleet::choose(const Prompt& prompt, double now_s) const {
  switch (options_.router) {
    case FleetRouter::kRoundRobin:
      return static_cast<std::uint32_t>(arrived_ % seats_.size());
    case FleetRouter::kPrefix:
      return by_prefix(prompt.path);
    case FleetRouter::kOverlap:
      return by_overlap(prompt.path);
    case FleetRouter::kEvents:
      break;
  }
  std::uint32_t best = least_loaded();
  double best_s = first_token_s(seats_[best], prompt, now_s);
  for (std::uint32_t i = 0; i < seats_.size(); ++i) {
    const double seconds = first_token_s(seats_[i], prompt, now_s);
    if (seconds < best_s) {
      best = i;
      best_s = seconds;
    }
  }
  return best;
}

// The one that was sent the fewest so far, of those with equally many running.
std::uint32_t Fleet::least_loaded() const {
  const auto least =
      std::ranges::min_element(seats_, {}, [](const Seat& seat) { return std::pair(seat.load(), seat.sent); });
  return static_cast<std::uint32_t>(least - seats_.begin());
}

std::uint32_t Fleet::by_prefix(std::span<const ContextId> path) const {
  std::uint32_t engine = kNoEngine;
  for (const ContextId id : path) {
    if (sent_to_[id] == kNoEngine) break;
    engine = sent_to_[id];
  }
  const std::uint32_t least = least_loaded();
  return engine == kNoEngine || seats_[engine].load() > seats_[least].load() + kImbalanceMax ? least : engine;
}

std::uint32_t Fleet::by_overlap(std::span<const ContextId> path) const {
  const auto best = std::ranges::max_element(seats_, {}, [&](const Seat& seat) {
    return std::pair(seat.engine->private_tokens(path), -static_cast<double>(seat.load()));
  });
  return static_cast<std::uint32_t>(best - seats_.begin());
}

double Fleet::first_token_s(const Seat& seat, const Prompt& prompt, double now_s) const {
  const double servers = options_.engine.servers, estimate_s = seat.engine->estimate_s(prompt, now_s);
  if (!full(seat)) return estimate_s;
  double waits_s = 0;
  if (shortest_first()) {
    const double own = simulated_turn(estimate_s, now_s);
    for (const Run& run : seat.served) {
      waits_s += turn(run, now_s) <= own ? run.end_s - now_s : rest_of_step_s(run, now_s);
    }
    for (const Run& run : seat.waiting) waits_s += turn(run) <= own ? run.remaining_s : 0;
    waits_s /= servers;
  } else {
    waits_s = std::ranges::min_element(seat.served, {}, &Run::end_s)->end_s - now_s + seat.waiting_s / servers;
  }
  return waits_s + estimate_s;
}

FleetResult Fleet::result() {
  FleetResult result;
  TieredResult& all = result.all;
  const std::size_t tiers = options_.engine.hardware.tiers.size();
  all.tokens_loaded.resize(tiers);
  all.bytes_read.resize(tiers);
  all.bytes_written.resize(tiers);
  double quality = 0;
  for (const Seat& seat : seats_) {
    const TieredResult& one = seat.engine->counts();
    all.requests += one.requests;
    all.tokens += one.tokens;
    all.tokens_computed += one.tokens_computed;
    for (std::size_t tier = 0; tier < tiers; ++tier) {
      all.tokens_loaded[tier] += one.tokens_loaded[tier];
      all.bytes_read[tier] += one.bytes_read[tier];
      all.bytes_written[tier] += one.bytes_written[tier];
    }
    quality += seat.engine->quality_sum();
    result.busiest_share = std::max(result.busiest_share, static_cast<double>(one.requests));
  }
  if (all.requests == 0) return result;
  const auto requests = static_cast<double>(all.requests);
  all.quality = quality / requests;
  for (const double ttft : ttfts_) all.ttft_mean_s += ttft / requests;
  all.ttft = percentiles_of(ttfts_);
  result.busiest_share /= requests;
  const double first_s = trace_.requests.front().arrival_s / options_.speed;
  result.duration_s = done_s_ - first_s;
  if (options_.engine.servers > 0 && done_s_ > 0) {
    all.busy = busy_s_ / (done_s_ * options_.engine.servers * static_cast<double>(seats_.size()));
  }
  result.store_bytes = store_.bytes_stored();
  result.evicted_bytes = store_.bytes_evicted();
  result.network_bytes = store_.bytes_moved();
  result.transfers = store_.transfers();
  result.network_peak_bytes_per_s = store_.peak_bytes_per_s();
  // Copies may still pass when the last first token has come.
  const double passed_s = std::max(done_s_, store_.busy_until_s()) - first_s;
  if (passed_s > 0) result.network_mean_bytes_per_s = static_cast<double>(result.network_bytes) / passed_s;
  if (options_.network_bytes_per_s > 0) {
    result.network_busy = result.network_mean_bytes_per_s / options_.network_bytes_per_s;
  }
  return result;
}

Status check_fleet(const FleetOptions& options) {
  if (options.engines == 0 || options.engines > kEnginesMax) {
    return fail(ErrorCode::kInvalidArgument, "{} engines: give 1 to {}", options.engines, kEnginesMax);
  }
  if (!(options.speed > 0)) return fail(ErrorCode::kInvalidArgument, "a speed of {}: give one above 0", options.speed);
  if (options.step_tokens == 0) return fail(ErrorCode::kInvalidArgument, "steps of no tokens: give 1 or more");
  if (!(options.network_bytes_per_s >= 0)) return fail(ErrorCode::kInvalidArgument, "a network of negative bandwidth");
  if (options.engine.batching || options.engine.warm_requests > 0) {
    return fail(ErrorCode::kInvalidArgument, "a fleet's engines serve whole requests, and all are counted");
  }
  if (!options.engine.profiles.empty()) {
    return fail(ErrorCode::kInvalidArgument, "a fleet's contexts are exact: leave the profiles out");
  }
  const auto& tiers = options.engine.hardware.tiers;
  if (options.shares && !tiers.empty() && tiers.back().capacity_bytes != ~std::uint64_t{0}) {
    return fail(ErrorCode::kInvalidArgument,
                "the shared tier, {}, is bounded for every engine: bound the store that they share instead",
                tiers.back().name);
  }
  return {};
}

}  // namespace

Result<FleetResult> simulate_fleet(const Trace& trace, const FleetOptions& options, const KeepGoing& keep_going) {
  SHALE_TRY(check_fleet(options));
  SHALE_ASSIGN(const TieredSetup setup, TieredSetup::make(options.engine));
  const auto start = std::chrono::steady_clock::now();
  FleetResult result = Fleet(trace, options, setup).run(keep_going);
  result.all.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace shale
