#include "sim/batched_engine.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace shale {
namespace {

// As the engine's batch builder has them (engine/batch.h, engine/chunk.h).
constexpr double kWaitWorth = 0.25;
constexpr std::uint64_t kTogetherMax = 64, kSmallestChunk = 8;

}  // namespace

SimulatedPool::SimulatedPool(const Contexts& contexts, std::uint64_t token_bytes, std::uint64_t capacity_bytes)
    : contexts_(contexts), token_bytes_(token_bytes), capacity_bytes_(capacity_bytes), held_(contexts.all().size()) {}

std::size_t SimulatedPool::find(std::span<const ContextId> path) const {
  const auto missing = std::ranges::find_if(path, [&](ContextId id) { return !held_[id].there; });
  return static_cast<std::size_t>(missing - path.begin());
}

bool SimulatedPool::begin(std::span<const ContextId> there, std::uint64_t own_bytes) {
  if (capacity_bytes_ == 0) return true;
  std::uint64_t more = own_bytes;
  for (const ContextId id : there) more += held_[id].users == 0 ? bytes(id) : 0;
  if (used_bytes_ > 0 && used_bytes_ + more > capacity_bytes_) return false;
  used_bytes_ += more;
  for (const ContextId id : there) {
    if (held_[id].users++ > 0) continue;
    unused_.erase(id);
    unused_bytes_ -= bytes(id);
  }
  while (unused_.size() > 0 && used_bytes_ + unused_bytes_ > capacity_bytes_) {
    const ContextId oldest = unused_.oldest().first;
    held_[oldest].there = false;
    unused_bytes_ -= bytes(oldest);
    unused_.erase_oldest();
  }
  return true;
}

std::size_t SimulatedPool::leave(std::span<const ContextId> path, std::size_t there, std::uint64_t& own_bytes) {
  if (capacity_bytes_ == 0) return there;
  for (; there < path.size() && !held_[path[there]].there; ++there) {
    held_[path[there]] = {.there = true, .users = 1};
    own_bytes -= bytes(path[there]);
  }
  return there;
}

void SimulatedPool::end(std::span<const ContextId> there, std::uint64_t own_bytes) {
  if (capacity_bytes_ == 0) return;
  used_bytes_ -= own_bytes;
  for (auto id = there.rbegin(); id != there.rend(); ++id) {  // the front is evicted last
    if (--held_[*id].users > 0) continue;
    used_bytes_ -= bytes(*id);
    unused_bytes_ += bytes(*id);
    unused_.touch(*id);
  }
}

BatchedEngine::BatchedEngine(const Trace& trace, const Contexts& contexts, const TieredOptions& options,
                             TieredEngine& engine)
    : trace_(trace),
      contexts_(contexts),
      options_(options),
      batching_(*options.batching),
      engine_(engine),
      pool_(contexts, options.hardware.kv_bytes_per_token, batching_.pool_bytes),
      tier_free_s_(options.hardware.tiers.size()) {}

void BatchedEngine::run(const KeepGoing& keep_going) {
  while (next_ < trace_.requests.size() || !running_.empty()) {
    while (admit()) {
      if (keep_going && next_ % kRequestsBetweenLooks == 0 && !keep_going(next_)) return;
    }
    if (!step()) now_s_ = next_event_s();
  }
}

// The next that came, if it fits beside those that run.
bool BatchedEngine::admit() {
  if (next_ == trace_.requests.size() || running_.size() >= batching_.sequences_max) return false;
  const TraceRequest& request = trace_.requests[next_];
  if (request.arrival_s > now_s_) return false;
  Run run{.request = next_, .path = contexts_.path(trace_, request), .answer_left = request.output_tokens};
  run.pooled = pool_.find(run.path);
  const auto pooled = std::span(run.path).first(run.pooled);
  std::uint64_t tokens = std::uint64_t{request.input_tokens} + request.output_tokens;
  for (const ContextId id : pooled) tokens -= contexts_.all()[id].tokens;
  run.own_bytes = tokens * options_.hardware.kv_bytes_per_token;
  if (!pool_.begin(pooled, run.own_bytes)) return false;

  if (next_ == options_.warm_requests) {
    engine_.count_from_here();
    counted_from_s_ = request.arrival_s;
    busy_s_ = 0;
  }
  const Served served = engine_.serve(run.path, now_s_, run.pooled);
  std::uint64_t named = 0;
  for (const ContextId id : run.path) named += contexts_.all()[id].tokens;
  const std::uint64_t unnamed = request.input_tokens - std::min<std::uint64_t>(named, request.input_tokens);
  if (next_ >= options_.warm_requests) unnamed_tokens_ += unnamed;
  run.left = std::max<std::uint64_t>(served.computed_tokens + unnamed, 1);  // a step gives the first token
  run.at = std::max<std::uint64_t>(request.input_tokens, run.left) - run.left;
  run.loaded_at_s = load(served);
  running_.push_back(std::move(run));
  ++next_;
  return true;
}

// When all is there: a tier reads for one request after another.
double BatchedEngine::load(const Served& served) {
  double loaded_at_s = now_s_;
  for (std::size_t tier = 0; tier < tier_free_s_.size(); ++tier) {
    if (served.load_s[tier] == 0) continue;
    tier_free_s_[tier] = std::max(tier_free_s_[tier], now_s_) + served.load_s[tier];
    loaded_at_s = std::max(loaded_at_s, tier_free_s_[tier]);
  }
  return loaded_at_s;
}

// False where nobody can be computed now.
bool BatchedEngine::step() {
  const auto decoding = static_cast<std::uint32_t>(std::ranges::count_if(running_, &Run::answered));
  const Hardware& hardware = options_.hardware;
  const double decode_s = hardware.step_s + decoding * hardware.decode_s_per_sequence;
  for (Run& run : running_) run.answer_left -= run.answered ? 1 : 0;
  const double prompts_s = compute_chunks(decoding, decode_s);
  if (decoding == 0 && prompts_s < 0) return false;
  const double seconds = decode_s + std::max(prompts_s, 0.0);
  now_s_ += seconds;
  busy_s_ += seconds;
  for (Run& run : running_) {
    if (run.left == 0 && !run.answered) first_token(run);
  }
  std::erase_if(running_, [&](const Run& run) {
    const bool done = run.answered && run.answer_left == 0;
    if (done) pool_.end(std::span(run.path).first(run.pooled), run.own_bytes);
    return done;
  });
  return true;
}

// Of the prompts whose turn it is, as much as fits a step in which so many decode. What it takes; below 0: there is
// none.
double BatchedEngine::compute_chunks(std::uint32_t decoding, double decode_s) {
  const Hardware& hardware = options_.hardware;
  std::vector<std::pair<double, Run*>> prompts;
  for (Run& run : running_) {
    if (run.left == 0 || run.loaded_at_s > now_s_) continue;
    prompts.emplace_back(hardware.prefill_s(run.left, run.at) + kWaitWorth * request_of(run).arrival_s, &run);
  }
  std::ranges::sort(prompts);
  const double room_s = std::max(batching_.chunk_slowdown * decode_s, batching_.chunk_step_s) - decode_s;
  double seconds = prompts.empty() ? -1 : 0;
  std::uint64_t tokens = 0;
  for (const auto& [turn, run] : prompts) {
    std::uint64_t room =
        batching_.chunk_tokens - std::min<std::uint64_t>(batching_.chunk_tokens - 1, decoding + tokens);
    if (decoding > 0) {
      const double token_s = hardware.prefill_s(1, run->at);
      const auto fits = static_cast<std::uint64_t>(std::max(0.0, (room_s - seconds) / token_s));
      room = std::min(room, std::max(fits / kSmallestChunk, std::uint64_t{tokens == 0}) * kSmallestChunk);
    }
    if (tokens > 0 && (run->left > room || tokens + run->left > kTogetherMax)) break;
    const std::uint64_t count = std::min(run->left, room);
    seconds += hardware.prefill_s(count, run->at);
    tokens += count;
    run->left -= count;
    run->at += count;
  }
  return seconds;
}

void BatchedEngine::first_token(Run& run) {
  run.answered = true;
  run.answer_left -= std::min(run.answer_left, 1u);
  run.pooled = pool_.leave(run.path, run.pooled, run.own_bytes);
  if (run.request >= options_.warm_requests) ttfts_.push_back(now_s_ - request_of(run).arrival_s);
}

double BatchedEngine::next_event_s() const {
  double next_s = std::numeric_limits<double>::infinity();
  for (const Run& run : running_) next_s = std::min(next_s, run.loaded_at_s);
  if (next_ < trace_.requests.size() && trace_.requests[next_].arrival_s > now_s_) {
    next_s = std::min(next_s, trace_.requests[next_].arrival_s);
  }
  return next_s;
}

}  // namespace shale
