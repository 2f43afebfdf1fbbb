#include "profile/spare_time.h"

#include <algorithm>
#include <utility>

#include "core/stopwatch.h"

namespace shale {
namespace {

constexpr double kStoringS = 0.1;

}  // namespace

SpareTime::SpareTime(Engine& engine, const Clock& clock, std::function<bool()> others)
    : engine_(engine), clock_(clock), others_(std::move(others)), since_s_(clock.now_s()) {}

SpareTime::~SpareTime() { engine_.charge_guest(clock_.now_s() - since_s_); }

bool SpareTime::alone() const { return engine_.running() + engine_.waiting() + engine_.preempted() == 0; }

bool SpareTime::let_others() {
  const bool had = guest_.done || guest_.given_up;
  {
    const RealClock clock;
    const Stopwatch others(clock, others_s_);
    ended_ = ended_ || !others_() || engine_.needs_guests_pages();
  }
  if ((guest_.done || guest_.given_up) && !had) others_s_ -= guest_.seconds;
  return !ended_;
}

// While nobody is running: storing has a tenth of a second, or all that it wants; whoever comes meanwhile waits for a
// piece of it.
bool SpareTime::stores_first(double waited_since_s) {
  if (!alone() || clock_.now_s() - waited_since_s >= kStoringS) return false;
  const RealClock clock;
  const Stopwatch others(clock, others_s_);
  return engine_.cache().work(engine_.model().executor());
}

bool SpareTime::wait_for_turn(std::uint32_t depth) {
  const double begun_s = clock_.now_s();
  engine_.charge_guest(begun_s - since_s_);
  do {
    if (!let_others()) break;
    tokens_ = engine_.guest_tokens(depth);
  } while (tokens_ == 0 || stores_first(begun_s));
  tokens_ = std::max(tokens_, 1U);
  // A token may begin a page, and copy one that it shares; what was free before may be others' by now, or kept for
  // later ones.
  if (!ended_) static_cast<void>(engine_.cache().evict_until_free(2 * tokens_));
  since_s_ = clock_.now_s();
  return !ended_;
}

Result<std::span<const float>> SpareTime::step(std::span<const StepSequence> batch) {
  engine_.charge_guest(clock_.now_s() - since_s_);
  guest_ = {.sequences = batch};
  engine_.invite(&guest_);
  while (!guest_.done && !guest_.given_up && let_others()) {
  }
  engine_.invite(nullptr);
  since_s_ = clock_.now_s();
  if (guest_.given_up) return fail(ErrorCode::kBusy, "requests came");
  if (!guest_.done) return fail(ErrorCode::kCancelled, "measuring was stopped");
  if (guest_.error) return std::unexpected(*guest_.error);
  return guest_.logits;
}

}  // namespace shale
