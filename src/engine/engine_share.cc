// Requests that begin alike and come together: one loads what they have in common, or makes the form that they name;
// the others wait for that, hold no blocks meanwhile, and share its own.
#include <algorithm>
#include <span>
#include <utility>

#include "engine/engine_state.h"

namespace shale {
namespace {

// A request waits to hear what others have left of its prefix on a shared tier: such a share of what computing the
// prompt takes, and no longer than that.
constexpr double kAskedShare = 0.1, kAskedMaxS = 0.25;

// Whose look-up or pages are like nobody else's.
bool keeps_to_itself(const RequestState& run) {
  return run.budget || run.request.policy.named() || !run.request.use_cache;
}

// Whether the other leaves what it finds to those that come after it.
bool leaves(const RequestState& other) { return !other.over && other.request.insert_prefix && !keeps_to_itself(other); }

// Whether that may be something for the run.
bool may_share(const RequestState& run, const RequestState& other, std::size_t block_tokens) {
  if (!leaves(other) || keeps_to_itself(run) || run.request.policy.salt != other.request.policy.salt) return false;
  if (std::min(run.prompt.size(), other.prompt.size()) < block_tokens) return false;
  return std::ranges::equal(std::span(run.prompt).first(block_tokens), std::span(other.prompt).first(block_tokens));
}

// Whether the form that it names is still to come, made or loaded, of which one that waits for another brings none.
bool brings_form(const RequestState& other) {
  const bool not_yet = other.fetching() || (other.prefilling_prompt() && !other.sequence.lossy());
  return !other.over && other.looks_up() && other.request.insert_prefix && not_yet;
}

}  // namespace

// Until it is over: it came, failed, was given up, or its request was preempted or is gone. For a front no longer than
// the run's own load would have taken.
bool Engine::State::in_flight(const RequestState& run) const {
  if (run.awaits.otherwise_s && clock.now_s() >= run.awaits_until_s) return false;
  return run.awaiting() && std::ranges::any_of(scheduler.running(), [&run](const auto& each) {
           if (run.awaits_form != 0) return each->id == run.awaits_form && brings_form(*each);
           return !each->over && each->retrieval.load_number() == run.awaits.load;
         });
}

// Whether the run waits for another of its tenant, whose turn is no later, that brings the form that both name.
bool Engine::State::await_form(RequestState& run) {
  const auto span = wanted(run).compressed;
  if (!span || !run.drawn.empty()) return false;
  const RequestPolicy& policy = run.request.policy;
  const auto same = [&](const std::unique_ptr<RequestState>& each) {
    const RequestState& other = *each;
    if (&other == &run || !brings_form(other) || other.share != run.share) return false;
    const RequestPolicy& others = other.request.policy;
    if (other.request.priority < run.request.priority || others.salt != policy.salt) return false;
    if (others.method != policy.method || others.keep != policy.keep || wanted(other).compressed != span) return false;
    const std::uint32_t end = run.span_end[*span];
    return other.span_begin(*span) == run.span_begin(*span) && other.span_end[*span] == end &&
           std::ranges::equal(std::span(run.prompt).first(end), std::span(other.prompt).first(end));
  };
  const auto other = std::ranges::find_if(scheduler.running(), same);
  if (other == scheduler.running().end()) return false;
  run.awaits_form = (*other)->id;
  run.note_awaited(run.span_end[*span]);
  return true;
}

// Whether the run waits for another's load in place of its own, or of its front, or for a form.
bool Engine::State::await_other(RequestState& run) {
  if (in_flight(run)) return true;
  run.await_nobody();
  if (await_form(run)) return true;
  if (keeps_to_itself(run)) return false;
  std::vector<const Retrieval*> loads;
  for (const auto& each : scheduler.running()) {
    if (leaves(*each) && each->bytes_missing() && each.get() != &run) loads.push_back(&each->retrieval);
  }
  if (loads.empty()) return false;
  const Wanted looked_up = wanted(run);
  run.awaits = cache.shared_load(loads, looked_up.tokens, looked_up.policy, backlog(run, false));
  if (run.awaits.otherwise_s && clock.now_s() >= run.awaits_until_s) run.awaits = {};
  if (run.awaiting()) run.note_awaited(run.awaits.tokens);
  return run.awaiting();
}

// Once each request that finds in the pool what it waited for.
void Engine::State::count_shared(RequestState& run) {
  const std::uint32_t awaited = std::exchange(run.awaited, 0);
  if (awaited == 0 || run.shared) return;
  std::uint32_t pooled = 0;
  for (const SourceUsed& source : run.retrieval.sources()) pooled += source.where == kPoolSource ? source.tokens : 0;
  const bool exact_alone = run.request.policy.named() && !run.retrieval.lossy();  // the form did not come
  run.shared = pooled >= awaited && !exact_alone;
  stats.shared_loads += run.shared;
}

// Those who need not wait for another any more look again: they share what came, and load, or make, what did not, one
// for all.
bool Engine::State::share_loads() {
  bool any = false;
  for (const auto& each : scheduler.running()) {
    RequestState& run = *each;
    if (run.over || !run.awaiting() || in_flight(run)) continue;
    run.asking = !run.resumed && being_asked(run);
    if (run.asking) continue;
    look_up(run);
    any = true;
  }
  return any;
}

// Whether shared tiers are being asked what others have left of its prefix, or of that of one who came before and
// begins alike: it may share what that one loads then. From when it was submitted, so that who waited for a turn waits
// no longer.
bool Engine::State::being_asked(const RequestState& run) const {
  if (!run.request.use_cache) return false;
  const auto tokens = static_cast<std::uint32_t>(run.prompt.size());
  const double patience_s = std::min(kAskedMaxS, kAskedShare * cache.costs().prefill_s(tokens, 0));
  const std::string& salt = run.request.policy.salt;
  if (clock.now_s() > run.submitted_s + patience_s || cache.pool_prefix(run.prompt, salt) + 1 >= tokens) return false;
  if (cache.store().discover(cache.keys_of(run.prompt, salt), tenant_of(salt))) return true;
  return std::ranges::any_of(scheduler.running(), [&](const auto& each) {
    return each->asking && each->id < run.id && may_share(run, *each, cache.pool().shape().block_size);
  });
}

}  // namespace shale
