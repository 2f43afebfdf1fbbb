#include "sim/batched_engine.h"

#include <algorithm>
#include <limits>

namespace shale {
namespace {

// Tokens of short prompts, which are computed together, and of the smallest chunk beside answers (engine/batch.h,
// engine/chunk.h).
constexpr std::uint64_t kShortTokens = 64, kSmallestChunk = 8;

}  // namespace

SimulatedPool::SimulatedPool(const Contexts& contexts, std::uint64_t token_bytes, std::uint64_t capacity_bytes,
                             std::function<void(ContextId)> on_evict)
    : contexts_(contexts),
      token_bytes_(token_bytes),
      capacity_bytes_(capacity_bytes),
      on_evict_(std::move(on_evict)),
      held_(contexts.all().size()) {}

std::vector<Served::Part> SimulatedPool::find(std::span<const ContextId> path) const {
  std::vector<Served::Part> parts;
  for (const ContextId id : path) {
    if (!held_[id].cached) break;
    parts.push_back(held_[id].part);
  }
  return parts;
}

bool SimulatedPool::begin(std::span<const ContextId> cached, std::uint64_t reserved_bytes) {
  if (capacity_bytes_ == 0) return true;
  std::uint64_t more = reserved_bytes;
  for (const ContextId id : cached) more += held_[id].users == 0 ? held_bytes(id) : 0;
  if (used_bytes_ > 0 && used_bytes_ + more > capacity_bytes_) return false;
  used_bytes_ += more;
  for (const ContextId id : cached) use(id);
  evict();
  return true;
}

// Whether nobody used it before.
bool SimulatedPool::use(ContextId id) {
  if (held_[id].users++ > 0) return false;
  unused_.erase(id);
  unused_bytes_ -= held_bytes(id);
  return true;
}

void SimulatedPool::evict() {
  while (unused_.size() > 0 && used_bytes_ + unused_bytes_ > capacity_bytes_) {
    const ContextId oldest = unused_.oldest().first;
    held_[oldest].cached = false;
    unused_bytes_ -= held_bytes(oldest);
    unused_.erase_oldest();
    on_evict_(oldest);
  }
}

void SimulatedPool::share(std::span<const ContextId> cached, std::uint64_t& reserved_bytes) {
  for (const ContextId id : cached) {
    reserved_bytes -= bytes(id);
    used_bytes_ -= bytes(id);
    if (use(id)) used_bytes_ += held_bytes(id);
  }
}

std::size_t SimulatedPool::insert(std::span<const ContextId> path, std::size_t cached, const Served& served,
                                  std::uint64_t& reserved_bytes) {
  if (capacity_bytes_ == 0) return cached;
  for (; cached < path.size(); ++cached) {
    Held& held = held_[path[cached]];
    const Served::Part& part = served.parts[cached];
    if (held.cached) {
      share(path.subspan(cached, 1), reserved_bytes);
      used_bytes_ -= held_bytes(path[cached]);
      if (part.exact) held.part = {};
    } else {
      held = {.cached = true,
              .users = 1,
              .part = {.quality = part.quality,
                       .expected = part.expected,
                       .exact = part.exact,
                       .method = part.method,
                       .keep = part.keep}};
      reserved_bytes -= bytes(path[cached]);
      used_bytes_ -= bytes(path[cached]);
    }
    used_bytes_ += held_bytes(path[cached]);
  }
  return cached;
}

void SimulatedPool::end(std::span<const ContextId> cached, std::uint64_t reserved_bytes) {
  if (capacity_bytes_ == 0) return;
  used_bytes_ -= reserved_bytes;
  for (auto id = cached.rbegin(); id != cached.rend(); ++id) {  // the front is evicted last
    if (--held_[*id].users > 0) continue;
    used_bytes_ -= held_bytes(*id);
    unused_bytes_ += held_bytes(*id);
    unused_.touch(*id);
  }
  evict();  // one that is larger than the pool
}

BatchedEngine::BatchedEngine(const Trace& trace, const Contexts& contexts, const TieredOptions& options,
                             TieredEngine& engine)
    : trace_(trace),
      contexts_(contexts),
      options_(options),
      batching_(*options.batching),
      engine_(engine),
      pool_(contexts, options.hardware.kv_bytes_per_token, batching_.pool_bytes,
            [this](ContextId id) { engine_.evicted(id, now_s_); }),
      tier_free_s_(options.hardware.tiers.size()) {}

void BatchedEngine::run(const KeepGoing& keep_going) {
  for (std::uint64_t turn = 0; next_ < trace_.requests.size() || !running_.empty(); ++turn) {
    if (keep_going && turn % kRequestsBetweenLooks == 0 && !keep_going(next_)) break;
    while (admit()) continue;
    if (step()) continue;
    const double next_s = next_event_s();
    rest(next_s);
    now_s_ = next_s;
  }
}

// The next that came, if it fits beside those that run.
bool BatchedEngine::admit() {
  if (!one_waits() || running_.size() >= batching_.sequences_max) return false;
  const TraceRequest& request = trace_.requests[next_];
  Run run{.request = next_,
          .prompt = contexts_.prompt(trace_, request),
          .served = {},
          .answer_left = std::max(request.output_tokens, 1u)};
  const std::vector<Served::Part> cached = pooled(run);
  run.cached = cached.size();
  const auto cached_path = std::span(run.prompt.path).first(run.cached);
  run.reserved_bytes =
      (std::uint64_t{request.input_tokens} + request.output_tokens) * options_.hardware.kv_bytes_per_token;
  for (const ContextId id : cached_path) run.reserved_bytes -= pool_.bytes(id);
  if (!pool_.begin(cached_path, run.reserved_bytes)) return false;
  if (next_++ == options_.warm_requests) {
    counted_from_s_ = now_s_;
    busy_s_ = 0;
  }
  look_up(run, cached);
  running_.push_back(std::move(run));
  return true;
}

std::uint32_t BatchedEngine::decoding() const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(running_, [](const Run& run) { return run.answered && run.answer_left > 0; }));
}

// What a step takes by itself and for those who decode in it.
double BatchedEngine::decode_s() const {
  return options_.hardware.step_s + decoding() * options_.hardware.decode_s_per_sequence;
}

// So many times as long as alone a prompt takes beside those who decode.
double BatchedEngine::slowdown() const {
  if (decoding() == 0 || batching_.chunk_slowdown == 0) return 1;
  const double token_s = options_.hardware.prefill_s(1, 0), room = (gap_s(decode_s()) - decode_s()) / token_s;
  const double tokens =
      std::clamp<double>(room, kSmallestChunk, std::max<double>(batching_.chunk_tokens, kSmallestChunk));
  return 1 + decode_s() / (tokens * token_s);
}

// What it takes of the pool; what it uses of it already it keeps.
std::vector<Served::Part> BatchedEngine::pooled(const Run& run) const {
  std::vector<Served::Part> cached = pool_.find(run.prompt.path);
  cached.resize(std::max(run.cached, engine_.pooled_that_pay(run.prompt.path, cached, now_s_, waits(run))));
  return cached;
}

Waits BatchedEngine::waits(const Run& run) const {
  Waits waits;
  for (const double free_s : tier_free_s_) waits.tiers_s.push_back(std::max(0.0, free_s - now_s_));
  ComputeBacklog& backlog = waits.engine;
  backlog.others = one_waits();
  for (const Run& other : running_) {
    if (other.request == run.request || other.answer_left == 0) continue;
    backlog.others = true;
    if (!loading(other)) backlog.compute_s += options_.hardware.prefill_s(other.to_compute, other.known_tokens);
  }
  backlog.slowdown = slowdown();
  backlog.compute_s *= backlog.slowdown;
  return waits;
}

// Tiers begin to read for it.
void BatchedEngine::look_up(Run& run, std::span<const Served::Part> cached) {
  Waits before = waits(run);
  before.meet = std::ranges::all_of(cached, &Served::Part::exact);
  run.served = engine_.look_up(run.prompt, now_s_, cached, before);
  const std::uint64_t input = request_of(run).input_tokens;
  // A step gives the first token, whatever was found.
  run.to_compute = std::max<std::uint64_t>(run.served.computed_tokens, 1);
  run.known_tokens = std::max(input, run.to_compute) - run.to_compute;
  run.decode_s = run.served.decode_s;
  run.loaded_at_s = now_s_;
  for (std::size_t tier = 0; tier < tier_free_s_.size(); ++tier) {
    if (run.served.transfer_s[tier] == 0) continue;
    read(tier, run.served.transfer_s[tier]);
    run.loaded_at_s = std::max(run.loaded_at_s, tier_free_s_[tier]);
  }
  run.meeting.reset();
  if (!run.served.meets.empty()) run.meeting.emplace(met_ranges(run), options_.hardware, tier_free_s_);
}

// The contexts that are loaded while they are computed; of a prompt that ends with them all but the last token.
std::vector<SimulatedMeeting::Range> BatchedEngine::met_ranges(const Run& run) const {
  std::vector<SimulatedMeeting::Range> ranges;
  for (std::size_t i = 0; i < run.served.meets.size(); ++i) {
    const Context& context = contexts_.all()[run.prompt.path[run.served.pooled + i]];
    const std::uint64_t last = request_of(run).input_tokens - 1, end = std::min<std::uint64_t>(context.end(), last);
    ranges.push_back({context.first_token, end - context.first_token, run.served.meets[i]});
  }
  return ranges;
}

// Asks for more of its back; once the front reaches what came, that is the prompt's.
void BatchedEngine::meet(Run& run) {
  run.to_compute -= run.meeting->ask(now_s_, run.known_tokens, waits(run).engine);
  if (!loading(run) || run.meeting->there_at_s() > now_s_) return;
  run.served.met_tokens.resize(tier_free_s_.size());
  for (std::uint32_t tier = 0; tier < tier_free_s_.size(); ++tier) {
    run.served.met_tokens[tier] = run.meeting->asked_of(tier);
    run.served.computed_tokens -= run.served.met_tokens[tier];
  }
  run.known_tokens = run.meeting->end();
  run.meeting.reset();
}

// Behind what the tier reads already.
void BatchedEngine::read(std::size_t tier, double seconds) {
  tier_free_s_[tier] = std::max(tier_free_s_[tier], now_s_) + seconds;
}

// Others may have left more of its prompt since it was looked up.
void BatchedEngine::look_again(Run& run) {
  const bool loads = std::ranges::any_of(run.served.parts, [](const auto& part) { return part.tier.has_value(); });
  if (run.begun || run.meeting || loads) return;
  const std::vector<Served::Part> cached = pooled(run);
  const auto more = std::span(run.prompt.path).subspan(run.cached, cached.size() - run.cached);
  pool_.share(more, run.reserved_bytes);
  run.cached = cached.size();
  look_up(run, cached);
}

// False where nobody can be computed now.
bool BatchedEngine::step() {
  for (Run& run : running_) {
    if (run.meeting) meet(run);
  }
  const double loading_s = decode_loaded(), decoding_s = decode_s();
  const double prompts_s = compute_chunks(decoding(), decoding_s, loading_s);
  if (decoding() == 0 && prompts_s < 0) return false;
  for (Run& run : running_) run.answer_left -= run.answered ? 1 : 0;
  const double seconds = loading_s + decoding_s + std::max(prompts_s, 0.0);
  now_s_ += seconds;
  busy_s_ += seconds;
  for (Run& run : running_) {
    if (run.to_compute == 0 && !run.answered) first_token(run);
  }
  for (Run& run : running_) {
    if (run.answer_left == 0) last_token(run);
  }
  std::erase_if(running_, [](const Run& run) { return run.answer_left == 0; });
  return true;
}

// What tiers have read since the last step.
double BatchedEngine::decode_loaded() {
  double seconds = 0;
  for (Run& run : running_) {
    if (run.loaded_at_s <= now_s_) seconds += std::exchange(run.decode_s, 0);
  }
  return seconds;
}

// Of the prompts whose turn it is, as much as fits a step in which so many decode, and before which what was read is
// decoded. What it takes; below 0: there is none.
double BatchedEngine::compute_chunks(std::uint32_t decoding, double decode_s, double loading_s) {
  const Hardware& hardware = options_.hardware;
  struct Turn {
    bool meets;  // more of it is on its way: others come first
    double turn;
    Run* run;
    auto operator<=>(const Turn&) const = default;
  };
  std::vector<Turn> prompts;
  for (Run& run : running_) {
    if (run.answered || loading(run)) continue;
    const double left_s = hardware.prefill_s(run.to_compute, run.known_tokens);
    const bool meets = run.meeting && run.meeting->there_at_s() > now_s_;
    prompts.push_back({meets, simulated_turn(left_s, request_of(run).arrival_s), &run});
  }
  std::ranges::sort(prompts);
  const auto is_short = [](const Turn& prompt) { return prompt.run->to_compute <= kShortTokens; };
  const bool may_pass = !passed_ && !prompts.empty() && !is_short(prompts.front());
  const auto alike = std::ranges::find_if(prompts, [&](const Turn& each) { return each.meets != prompts[0].meets; });
  passed_ = may_pass && std::stable_partition(prompts.begin(), alike, is_short) != prompts.begin();
  const bool bounds = decoding > 0 && batching_.chunk_slowdown > 0;
  const double room_s = gap_s(decode_s) - decode_s - loading_s;
  double seconds = prompts.empty() ? -1 : 0;
  std::uint64_t tokens = 0;
  for (const auto& [meets, turn, run] : prompts) {
    std::uint64_t room =
        batching_.chunk_tokens - std::min<std::uint64_t>(batching_.chunk_tokens - 1, decoding + tokens);
    if (bounds) {
      const double token_s = hardware.prefill_s(1, run->known_tokens);
      const double fits = std::clamp((room_s - seconds) / token_s, 0.0, static_cast<double>(room));
      const auto chunks = static_cast<std::uint64_t>(fits) / kSmallestChunk;
      room = std::min(room, std::max(chunks, std::uint64_t{tokens == 0}) * kSmallestChunk);
    }
    if (tokens > 0 && (run->to_compute > room || tokens + run->to_compute > kShortTokens)) break;
    std::uint64_t count = std::min(run->to_compute, room);
    if (run->meeting) count = std::min({count, run->meeting->limit() - run->known_tokens, kSimulatedMeetingChunk});
    seconds += hardware.prefill_s(count, run->known_tokens);
    tokens += count;
    run->to_compute -= count;
    run->known_tokens += count;
    run->begun = true;
  }
  return seconds;
}

void BatchedEngine::first_token(Run& run) {
  run.answered = true;
  --run.answer_left;
  const bool counts = counted(run);
  run.cached = pool_.insert(run.prompt.path, run.cached, run.served, run.reserved_bytes);
  read_for_moves(engine_.finish(run.prompt.path, run.served, now_s_, counts, pool_.find(run.prompt.path)));
  if (counts) ttfts_.push_back(now_s_ - request_of(run).arrival_s);
  for (Run& other : running_) look_again(other);
}

// What was said is computed, too.
void BatchedEngine::last_token(Run& run) {
  std::vector<ContextId> held = run.prompt.path;
  if (run.served.exact()) {
    held.insert(held.end(), run.prompt.answer.begin(), run.prompt.answer.end());
    run.served.parts.resize(held.size());
    run.cached = pool_.insert(held, run.cached, run.served, run.reserved_bytes);
    read_for_moves(engine_.answered(run.prompt, run.served, now_s_, counted(run), run.cached == held.size()));
  }
  pool_.end(std::span(held).first(run.cached), run.reserved_bytes);
}

void BatchedEngine::read_for_moves(std::span<const std::uint64_t> bytes) {
  for (std::size_t tier = 0; tier < bytes.size(); ++tier) {
    read(tier, static_cast<double>(bytes[tier]) / options_.hardware.tiers[tier].read_bytes_per_s);
  }
}

// What is left to move while nobody is served, a round after what the one before has read.
void BatchedEngine::rest(double until_s) {
  while (running_.empty() && now_s_ < until_s) {
    const auto bytes = engine_.settle(now_s_, next_ > options_.warm_requests);
    if (!bytes) return;
    read_for_moves(*bytes);
    now_s_ = std::min(until_s, std::max(now_s_, std::ranges::max(tier_free_s_)));
  }
}

double BatchedEngine::next_event_s() const {
  double next_s = std::numeric_limits<double>::infinity();
  for (const Run& run : running_) {
    next_s = std::min(next_s, run.meeting ? run.meeting->there_at_s() : run.loaded_at_s);
  }
  if (next_ < trace_.requests.size() && trace_.requests[next_].arrival_s > now_s_) {
    next_s = std::min(next_s, trace_.requests[next_].arrival_s);
  }
  return next_s;
}

}  // namespace shale
