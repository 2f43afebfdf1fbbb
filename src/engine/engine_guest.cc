// Guests: tokens of whoever measures, in spare places of steps and in time of background work.
#include <algorithm>
#include <bit>
#include <utility>

#include "engine/engine_state.h"

namespace shale {
namespace {

constexpr std::uint32_t kApart = 16;  // of one of a guest's own: it reads all weights, and few tokens more are cheap
constexpr std::uint32_t kJoinedMax = 64;

void smooth(double& mean, double value) { mean += (value - mean) / (mean == 0 ? 1 : 4); }

// Parks a step at the first layer, but the next, that begins after the time is up.
class UntilDue final : public StepHooks {
 public:
  UntilDue(const Clock& clock, double due_s) : clock_(clock), due_s_(due_s) {}
  bool ready(std::uint32_t) override { return std::exchange(next_, false) || clock_.now_s() < due_s_; }

 private:
  const Clock& clock_;
  const double due_s_;
  bool next_ = true;
};

}  // namespace

// Whether all places are taken, or wanted.
bool Engine::State::crowded() {
  return scheduler.next() || !scheduler.preempted().empty() || scheduler.running().size() >= options.sequences_max;
}

// 0 also where one of those running computes its prompt.
std::uint32_t Engine::State::decoding() const {
  std::uint32_t count = 0;
  for (const auto& run : scheduler.running()) {
    if (run->over || run->loading()) continue;
    if (run->prefilling()) return 0;
    ++count;
  }
  return count;
}

std::uint32_t Engine::State::guest_count() const {
  std::uint32_t tokens = 0;
  for (const StepSequence& each : guest->sequences) tokens += static_cast<std::uint32_t>(each.tokens.size());
  return tokens;
}

// Tokens of its sequences before those of its step.
std::uint64_t Engine::State::guest_behind() const {
  std::uint64_t tokens = 0;
  for (const StepSequence& each : guest->sequences) {
    tokens += each.sequence->length() - std::min<std::size_t>(each.sequence->length(), each.tokens.size());
  }
  return tokens;
}

// A step that was cut for another time, such as while nobody was running, is cut anew where it is much larger than one
// cut now.
bool Engine::State::give_up_guest_beyond(std::uint32_t tokens) {
  guest->given_up = guest_count() > 2 * tokens;
  return guest->given_up;
}

// In few sizes: the model prepares for each that it meets first.
std::uint32_t Engine::State::guest_tokens_joined() const {
  const double room = batches.guest_tokens(decoding(), guest_s, guest_depth) + 1e-9;
  return std::bit_floor(static_cast<std::uint32_t>(std::clamp(room, 0.0, double{kJoinedMax})));
}

// Where it changes how those who decode are computed, it has a step of its own.
bool Engine::State::guest_joins(std::span<const BatchPart> parts) {
  if (!guest_waits() || crowded() || guest_s <= 0) return false;
  const auto decodes = [&](const BatchPart& part) {
    return !part.prefills() && !(model.answers_apart() && part.role() == StepSequence::Role::kAnswer);
  };
  if (!std::ranges::all_of(parts, decodes) || model.quick(step_sequences(parts))) return false;
  if (!give_up_guest_beyond(std::max(1U, guest_tokens_joined()))) return true;
  guest_apart = false;  // the next is cut to join
  return false;
}

Result<std::span<const float>> Engine::State::compute_with_guest(std::span<const BatchPart> parts) {
  std::vector<StepSequence> sequences = step_sequences(parts);
  sequences.insert(sequences.end(), guest->sequences.begin(), guest->sequences.end());
  guest_apart = false;
  return model.step(sequences);
}

void Engine::State::fail_guest(const Error& error) {
  guest->error = error;
  guest->done = true;
}

void Engine::State::finish_guest(std::span<const float> logits, double seconds, bool charged) {
  guest->seconds = seconds;
  guest->logits.assign(logits.begin(), logits.end());
  guest->done = true;
  if (!charged) return;
  stats.guest_tokens += guest_count();
  stats.guest_seconds += seconds;
  guest_s -= seconds;
}

// A part of its step. Nothing where that is not over: whoever comes then need not wait for the rest. What is watched
// for scorers would not bear to be computed again.
Result<std::optional<std::span<const float>>> Engine::State::compute_guest_alone() {
  const auto watched = [](const StepSequence& each) { return each.capture || each.live; };
  const double begun_s = clock.now_s();
  UntilDue until_due(clock, begun_s + options.idle_slice_s);
  StepHooks* const hooks = std::ranges::any_of(guest->sequences, watched) ? nullptr : &until_due;
  if (!guest_parked) guest_computed_s = 0;
  auto logits = guest_parked ? model.resume(hooks) : model.begin(guest->sequences, hooks);
  guest_parked = logits && !*logits;
  guest_computed_s += clock.now_s() - begun_s;
  return logits;
}

// What was computed of its step is lost: the model is about to begin another, beside which it may be too large.
void Engine::State::give_up_guest() {
  if (!std::exchange(guest_parked, false)) return;
  guest->given_up = true;
  guest->seconds = guest_computed_s;
}

// A step of its own: while nobody is running, and beside those who decode where it could not join theirs. Who is
// loading takes in each layer as it comes.
bool Engine::State::step_guest() {
  if (!guest_waits()) return false;
  const bool alone = scheduler.running().empty();
  if (alone && repeated) return false;  // whoever comes waits for one step
  if (!alone) {
    if (crowded() || decoding() == 0 || guest_s <= 0 || guest_s < guest_step_s) return false;
    guest_apart = true;
    if (give_up_guest_beyond(kApart)) return false;
  }
  const double begun_s = clock.now_s();
  const auto logits = alone ? compute_guest_alone() : model.begin(guest->sequences);
  if (guest_parked) return true;
  const double seconds = alone ? guest_computed_s : clock.now_s() - begun_s;
  if (!logits) {
    fail_guest(logits.error());
    return true;
  }
  if (alone) {
    idle_step.took(guest_count(), seconds);
  } else {
    smooth(guest_step_s, seconds);
  }
  finish_guest(**logits, seconds, !alone);
  return true;
}

// Their share of the last step, less what background work took of it; none of what that may have on top while it holds
// much of the pool. Saved up is as much as the smallest step takes.
void Engine::State::earn_for_guests(double share, double used_s) {
  if (crowded()) return;
  const double share_s = std::min(share, options.background_share) * shared_step_s();
  const double smallest_s = guest_apart ? guest_step_s : batches.guest_seconds(decoding(), 1, guest_depth);
  guest_s = std::min(guest_s + std::max(0.0, share_s - used_s), std::max(share_s, smallest_s));
}

std::uint32_t Engine::guest_tokens(std::uint32_t depth) {
  State& s = *state_;
  s.guest_depth = depth;
  if (s.scheduler.running().empty() && !s.crowded()) return s.idle_step.tokens();
  if (s.crowded()) return 0;
  if (s.decoding() == 0 || s.guest_s <= 0) return 0;
  if (s.guest_apart) return s.guest_s >= s.guest_step_s ? kApart : 0;
  return s.guest_tokens_joined();
}

void Engine::invite(GuestStep* guest) {
  state_->guest = guest;
  state_->guest_parked = false;
}

void Engine::charge_guest(double seconds) {
  if (state_->scheduler.running().empty()) return;
  state_->guest_s -= seconds;
  state_->stats.guest_seconds += seconds;
}

bool Engine::stores_any() const { return state_->storing.repetition() || state_->cache.stores_any(); }

std::vector<std::uint32_t> Engine::spans_to_repeat() const {
  std::vector<std::uint32_t> tokens;
  for (const auto& repetition : state_->storing.repetitions()) tokens.push_back(repetition->exact().length());
  return tokens;
}

// What a turn may append, twice: nobody who is running is preempted because somebody measures.
bool Engine::needs_guests_pages() const {
  State& s = *state_;
  const auto& running = s.scheduler.running();
  if (running.empty() && !s.scheduler.next()) return false;
  const PagePool& pool = s.cache.pool();
  const std::uint32_t margin = 2 * pool.shape().pages_for(s.options.chunk_tokens) + 4 * s.options.sequences_max;
  if (!s.scheduler.preempted().empty()) return true;
  if (pool.blocks_free() < margin && pool.blocks_free() + s.cache.blocks_evictable() < margin) return true;
  const RequestState* next = s.scheduler.next();
  return next && running.size() < s.options.sequences_max && !s.blocks.fits(*next, running, 0);
}

}  // namespace shale
