// Around the forward steps: who begins, what has been loaded, what is done behind. Nothing here waits for a tier.
#include <algorithm>
#include <utility>

#include "engine/background_share.h"
#include "engine/engine_state.h"

namespace shale {
namespace {

constexpr std::uint32_t kResumeMargin = 8;  // blocks to grow into, so that a run that goes on does not stop at once
// Decoding what was loaded takes so much of a step's time while others compute, and so long a turn while nobody does.
constexpr double kLoadShare = 0.25;
constexpr double kLoadAloneS = 0.01;
constexpr double kPauseMaxS = 0.001;
// Who waits for the loads of others is looked at again after so many times what looking takes, within these bounds.
constexpr double kLookTimes = 20, kLookAgainS = 0.02, kLookAgainMaxS = 1;
constexpr std::uint32_t kRetriesMax = 3;  // look-ups of a run after loads that failed

}  // namespace

bool Engine::State::admit() {
  bool admitted = false;
  while (scheduler.running().size() < options.sequences_max) {
    RequestState* next = scheduler.next();
    if (!next) break;
    const bool back = next->begun;
    if (!back && storing.repetition()) break;  // it has the pages that it needs, and ends sooner
    const std::uint32_t margin = back ? kResumeMargin : 0;
    if (!may_begin(*next, margin)) break;
    if (next->spilled) {
      if (!bring_back(*next)) break;
      if (!next->over && next->sequence.length() == 0) continue;  // its bytes are lost
    }
    scheduler.start(*next);
    stats.resumed += back;
    next->resumed = back;
    admitted = true;
    if (next->over || next->sequence.length() > 0) continue;
    if (next->started_s == 0) {
      next->started_s = clock.now_s();
      next->response.queue_seconds = next->started_s - next->submitted_s;
    }
    if (!back) next->share->charge(static_cast<double>(next->prompt.size()));
    next->asking = !back && !next->awaiting() && being_asked(*next);
    if (next->asking) continue;
    fetch(*next, false);
    if (!back) charge_less(*next, 0);
  }
  return admitted;
}

// Whether there is room for it, and for its load unless it would load nothing, or nothing by itself. A preempted run's
// bytes come before it begins.
bool Engine::State::may_begin(RequestState& run, std::uint32_t margin) {
  const auto& running = scheduler.running();
  if (!in_flight(run)) run.await_nobody();
  if (running.empty()) return true;
  const double begun_s = clock.now_s();
  const bool looks = !run.spilled && begun_s >= run.look_again_at_s;
  if (looks && !run.awaiting()) static_cast<void>(await_other(run));
  bool may = blocks.fits(run, running, margin);
  if (may && !run.spilled && !run.awaits_all() && !blocks.may_load(run, running)) may = looks && loads_nothing(run);
  if (may || !looks) return may;
  const double took_s = clock.now_s() - begun_s;
  run.look_again_at_s = begun_s + std::clamp(kLookTimes * took_s, kLookAgainS, kLookAgainMaxS);
  return false;
}

bool Engine::State::loads_nothing(const RequestState& run) {
  if (run.request.policy.named()) return false;
  const Wanted looked_up = wanted(run);
  if (looked_up.tokens.empty()) return true;
  if (!run.begun && being_asked(run)) return false;
  return !cache.would_load(looked_up.tokens, looked_up.policy, backlog(run, false));
}

// For those that begin, once shared tiers have said what they have of the prefix, or took too long; whether any went
// on.
bool Engine::State::hear() {
  bool heard = false;
  for (const auto& each : scheduler.running()) {
    RequestState& run = *each;
    if (run.over || !run.asking || being_asked(run)) continue;
    run.asking = false;
    look_up(run);
    heard = true;
  }
  return heard;
}

// What is found is not computed for its tenant; more of it was before, or less.
void Engine::State::charge_less(const RequestState& run, std::uint32_t found_before) {
  run.share->charge(static_cast<double>(found_before) - run.computed_from);
}

Engine::State::Wanted Engine::State::wanted(const RequestState& run) const {
  if (!run.request.use_cache) return {};
  Wanted wanted{.tokens = run.prompt, .policy = run.request.policy, .compressed = {}};
  const std::size_t stored = run.first_stored();
  // Exact KV past the span that a method is applied to would be of no use.
  if (run.request.policy.named() && stored + 1 < run.request.spans.size()) {
    wanted.compressed = stored;
    wanted.tokens = wanted.tokens.first(std::min<std::size_t>(run.span_end[stored] + 1, wanted.tokens.size()));
  }
  wanted.policy.exact = wanted.policy.exact || !run.drawn.empty();  // its answer goes on
  if (run.budget) {
    // Positions are known of exact pages alone, and a scorer's queries of computed tokens.
    wanted.policy.exact = true;
    const auto prompt = static_cast<std::uint32_t>(run.prompt.size());
    const std::uint32_t computed = run.budget->computed_min(prompt);
    // The last token of what is asked for is never fetched.
    wanted.tokens = wanted.tokens.first(computed < prompt ? prompt - computed + 1 : 0);
    // A prompt that is cut chunk by chunk may be longer than the pool. What is found is held whole before the first
    // cut.
    const bool chunked = run.budget->options().prefill == BudgetPrefill::kChunked;
    if (chunked && cache.pool().shape().pages_for(prompt) >= cache.pool().blocks_total()) {
      wanted.tokens = wanted.tokens.first(std::min<std::size_t>(run.budget->tokens(), wanted.tokens.size()));
    }
  }
  return wanted;
}

// What the engine would compute before the run's prompt, and how fast.
Backlog Engine::State::backlog(const RequestState& run, bool pool_only) const {
  const std::uint32_t itself = run.begun ? 0 : 1;
  ComputeBacklog engine{.others = scheduler.waiting() > itself};
  std::uint32_t decoding = 0;
  for (const auto& each : scheduler.running()) {
    if (each.get() == &run || each->over) continue;
    engine.others = true;
    if (each->loading()) continue;
    if (each->decoding()) {
      ++decoding;
      continue;
    }
    const std::uint32_t begin = each->sequence.length();
    engine.compute_s += cache.costs().prefill_s(static_cast<std::uint32_t>(each->known()) - begin, begin);
  }
  engine.slowdown = batches.prompt_slowdown(decoding, static_cast<std::uint32_t>(run.prompt.size()) / 2);
  engine.compute_s *= engine.slowdown;
  return {.engine = engine, .pool_only = pool_only, .meet = true};
}

// Who waited for that, to hear of its prefix or for another's load.
void Engine::State::look_up(RequestState& run) {
  fetch(run, false);
  if (!run.resumed) charge_less(run, 0);
}

// Looks up the run's prefix; what lies on a tier is on its way then, of its own load or another's that it waits for.
void Engine::State::fetch(RequestState& run, bool pool_only) {
  if (!pool_only && await_other(run)) {
    const auto otherwise_s = run.awaits.otherwise_s;
    if (otherwise_s) run.awaits_until_s = std::min(run.awaits_until_s, clock.now_s() + *otherwise_s);
    return found(run);
  }
  const auto [tokens, policy, compressed] = wanted(run);
  if (!tokens.empty()) {
    Backlog before = backlog(run, pool_only);
    if (policy.counts) before.ensure_free = [this](std::uint32_t needed) { return blocks.ensure_free(needed); };
    run.retrieval = cache.retrieve(tokens, policy, run.sequence, before);
  }
  found(run);
  count_shared(run);
  const bool whole = compressed && run.computed_from == run.span_end[*compressed] && !run.retrieval.lossy();
  run.compress_once_loaded = whole ? compressed : std::nullopt;
  if (!run.bytes_missing()) loaded(run);
}

// What the run holds of its prompt, or will once its bytes are there.
void Engine::State::found(RequestState& run) {
  run.computed_from = run.sequence.length();
  run.from_tiers = run.retrieval.tokens_loaded() > 0;
  run.reproducible = run.retrieval.reproducible();
  run.lossy_from = run.retrieval.lossy_from();
  run.response.lossy = run.retrieval.lossy();
  note_sources(run);
}

void Engine::State::note_sources(RequestState& run) {
  if (!run.drawn.empty()) return;  // what is found to go on is its own
  run.response.sources = run.retrieval.sources();
  run.response.cached = CachedTokens(cache.tiers());
  for (const SourceUsed& source : run.response.sources) run.response.cached.add(source.where, source.tokens);
}

void Engine::State::loaded(RequestState& run) {
  storing.loaded(run);
  const auto span = std::exchange(run.compress_once_loaded, std::nullopt);
  if (!span) return;
  if (Status status = storing.compress(run, *span); !status) {
    finish(run, StopReason::kError, std::move(status).error());
  }
}

// Goes on from the first block that did not come. Where that is none, because what came is lossy or the first failed,
// looks up anew, without what could not be read; not for ever.
void Engine::State::retry(RequestState& run) {
  ++stats.retried;
  unpark(run);
  const std::uint32_t before = run.computed_from;
  run.compress_once_loaded.reset();
  run.retrieval = cache.keep_what_came(std::move(run.retrieval), run.sequence);
  if (run.sequence.length() == 0) {
    fetch(run, ++run.retries > kRetriesMax);
  } else {
    found(run);
    storing.loaded(run);
  }
  charge_less(run, before);
  run.resumed = false;  // from here on it is charged as any other
}

// A prompt was computed to its end: others that begin alike, and of which nothing is computed yet, share it.
void Engine::State::rematch_waiting() {
  for (const auto& each : scheduler.running()) {
    RequestState& run = *each;
    const std::uint32_t before = run.computed_from;
    const bool computed = run.sequence.length() > before || !run.drawn.empty();
    if (run.over || computed || run.fetching() || run.request.policy.named()) continue;
    const Wanted looked_up = wanted(run);
    if (!cache.rematch(looked_up.tokens, looked_up.policy, run.sequence, run.retrieval)) continue;
    for (auto& capture : run.captures) capture.reset();
    found(run);
    charge_less(run, before);
  }
}

// Applies the method that the request names, for so long at most. Returns how long it took.
double Engine::State::compress(RequestState& run, double budget_s) {
  const double begun_s = clock.now_s();
  double seconds = 0;
  do {
    if (const std::uint32_t needed = run.compression->blocks_needed(); needed > 0 && !ensure_free(&run, needed)) {
      preempt(run);
      return clock.now_s() - begun_s;
    }
    const auto more = run.compression->step(model.executor());
    seconds = clock.now_s() - begun_s;
    if (!more) {
      run.compression.reset();
      finish(run, StopReason::kError, more.error());
      break;
    }
    if (!*more) {
      unpark();  // it may compute
      storing.compressed(run);
      break;
    }
  } while (seconds < budget_s);
  return seconds;
}

// What loads, work behind and guests have shares of: the last step, but where others wait for a next token no more than
// they may wait.
double Engine::State::shared_step_s() const {
  const auto decoding = std::ranges::count_if(
      scheduler.running(), [](const auto& run) { return !run->over && !run->drawn.empty() && !run->fetching(); });
  return decoding > 0 ? std::min(step_s, batches.gap_s(static_cast<std::uint32_t>(decoding))) : step_s;
}

// Takes in what has come, for those who began first before others. Who has waited too long computes instead.
bool Engine::State::load() {
  const bool others_compute = BatchBuilder::any(scheduler.running());
  double left_s = others_compute ? kLoadShare * shared_step_s() : kLoadAloneS;
  bool worked = false;
  for (std::size_t i = 0; i < scheduler.running().size() && left_s >= 0; ++i) {
    RequestState& run = *scheduler.running()[i];
    if (run.over || !run.looks_up() || run.repetition || !run.fetching()) continue;
    if (run.compression) {
      left_s -= compress(run, left_s);
      worked = true;
      continue;
    }
    const bool meets = run.retrieval.compute_until() > 0;
    const double begun_s = clock.now_s();
    const double before_s = meets ? backlog(run, false).engine.compute_s : 0;
    const auto decoded = run.retrieval.poll(model.executor(), left_s, before_s);
    left_s -= clock.now_s() - begun_s;
    if (!decoded) {
      retry(run);
    } else if (!*decoded && run.retrieval.late()) {
      unpark(run);
      const std::uint32_t before = run.computed_from;
      run.sequence.clear();
      cache.give_up(std::exchange(run.retrieval, Retrieval()));
      fetch(run, true);
      charge_less(run, before);
    } else if (!*decoded && run.bytes_missing()) {
      continue;
    }
    worked = true;
    if (meets && !run.bytes_missing()) {
      const auto before = static_cast<double>(run.response.cached.total());
      note_sources(run);
      run.share->charge(before - static_cast<double>(run.response.cached.total()));
    }
    if (!run.over && !run.bytes_missing()) loaded(run);
  }
  return worked;
}

// Gives up the step that is parked, if any: the model forgets it when it begins another.
void Engine::State::unpark() {
  give_up_guest();
  if (!parked) return;
  RequestState& run = *parked->run;
  if (!run.over && run.sequence.length() > parked->length) run.sequence.truncate(parked->length);
  parked.reset();
}

// Where it is the run's.
void Engine::State::unpark(const RequestState& run) {
  if (parked && parked->run == &run) unpark();
}

double Engine::State::background_share() {
  const bool waited_for = scheduler.next() || std::ranges::any_of(scheduler.running(), [](const auto& run) {
                            return !run->over && run->drawn.empty();
                          });
  const double held = static_cast<double>(cache.blocks_waiting_to_be_encoded()) / cache.pool().blocks_total();
  return background_share_of(options.background_share, held, waited_for);
}

// Its share of the last step, less what it took too much before: what it did not need is not saved up, or others would
// wait for all of it at once. While nobody computes, piece after piece.
bool Engine::State::work_behind() {
  const bool others_compute = BatchBuilder::any(scheduler.running());
  if (!others_compute) return !guest_parked && cache.work(model.executor());
  const double share = background_share();
  background_s = std::min(background_s, 0.0) + share * shared_step_s();
  double used_s = 0;
  bool worked = false;
  while (background_s > 0) {
    const double begun_s = clock.now_s();
    if (!cache.work(model.executor())) break;
    used_s += clock.now_s() - begun_s;
    background_s -= clock.now_s() - begun_s;
    worked = true;
  }
  earn_for_guests(share, used_s);
  return worked;
}

// While all that is running waits for a tier: a little longer, the longer nothing came.
void Engine::State::pause() {
  const double now_s = clock.now_s();
  if (idle_since_s < 0) idle_since_s = now_s;
  clock.sleep_until_s(now_s + std::clamp((now_s - idle_since_s) / 64, 5e-5, kPauseMaxS));
}

bool Engine::run_once() {
  State& s = *state_;
  s.scheduler.reap();
  bool worked = s.share_loads();  // before others get the room of those whose loader is gone
  worked = s.admit() || worked;
  worked = s.hear() || worked;
  worked = s.load() || worked;
  worked = s.share_loads() || worked;
  worked = s.step_repetition() || worked;
  worked = s.step() || worked;
  worked = s.step_guest() || worked;
  worked = s.work_behind() || worked;
  const bool moving = s.move_spilled();
  s.scheduler.reap();
  if (worked) {
    s.idle_since_s = -1;
    return true;
  }
  const bool any = s.scheduler.next() || !s.scheduler.running().empty() || !s.scheduler.preempted().empty();
  if (!any && !moving) return false;
  s.pause();
  return true;
}

}  // namespace shale
