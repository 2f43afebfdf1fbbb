// An engine's parts, and what joins them: engine.cc (requests in and out), engine_turn.cc (who begins, what is loaded),
// engine_share.cc (who waits for another), engine_preempt.cc (whose place is taken), engine_guest.cc (who measures in
// spare places), engine_step.cc (forward steps), engine_repetition.cc (in which a span is repeated).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/batch.h"
#include "engine/block_manager.h"
#include "engine/engine.h"
#include "engine/idle_step.h"
#include "engine/request_scheduler.h"
#include "engine/request_state.h"
#include "engine/storing.h"

namespace shale {

struct Engine::State {
  EngineOptions options;
  Model& model;
  const Tokenizer& tokenizer;
  Cache& cache;
  const Clock& clock;

  RequestScheduler scheduler{options.scheduler, options.scheduling, cache};
  Storing storing{model, tokenizer, cache};
  BlockManager blocks{cache, storing, model.info(), options.chunk_tokens};
  BatchBuilder batches{options.chunk_tokens, options.chunk_slowdown, options.chunk_step_s, cache.costs()};

  std::vector<Response> done = {};
  EngineStats stats = {};
  RequestId next_id = 1;
  Hash128 nonce = {};  // of this engine: names of what it spills
  // A step of a run alone whose prefix is still being loaded, parked in front of a layer that has not come (model.h).
  // No more than one step is parked, this or a guest's.
  std::optional<BatchPart> parked = {};
  std::vector<std::unique_ptr<SpilledSequence>> let_go = {};  // of cancelled runs, until they are written
  std::vector<float> both = {};                               // logits of a step of two parts (compute_apart)
  double step_s = 0;                                          // that the last forward step took
  double stepped_s = 0;                                       // when it ended
  double background_s = 0;                                    // that background work may take now
  bool repeated = false;                                      // this turn, or the last, had a step of a repetition
  double idle_since_s = -1;                                   // nothing came from a tier since; negative: something did

  GuestStep* guest = nullptr;
  double guest_s = 0;       // that guests may take now; below 0: that they took too much
  double guest_step_s = 0;  // that a step of a guest's own takes beside those who decode; smoothed
  IdleStep idle_step{options.idle_step_s};
  bool guest_parked = false;      // its step is, in front of a layer
  double guest_computed_s = 0;    // of that step until then
  std::uint32_t guest_depth = 0;  // that was asked for last
  bool guest_apart = false;       // the last one had a step of its own beside those who decode

  // Whether what is computed is as with halves; of a pool of int8 no answer is.
  bool exact_pages() const { return cache.pool().shape().element == PageElement::kHalf; }

  // What is looked up of a run's prompt, and by what policy.
  struct Wanted {
    std::span<const Token> tokens;
    RequestPolicy policy;
    std::optional<std::size_t> compressed;  // the span that the request's method is to be applied to
  };

  // engine_turn.cc
  bool admit();
  bool may_begin(RequestState& run, std::uint32_t margin);
  bool loads_nothing(const RequestState& run);
  bool hear();
  Wanted wanted(const RequestState& run) const;
  Backlog backlog(const RequestState& run, bool pool_only) const;
  void look_up(RequestState& run);
  void fetch(RequestState& run, bool pool_only);
  void found(RequestState& run);
  void charge_less(const RequestState& run, std::uint32_t found_before);
  void note_sources(RequestState& run);
  void loaded(RequestState& run);
  void retry(RequestState& run);
  void rematch_waiting();
  double compress(RequestState& run, double budget_s);
  bool load();
  void unpark();
  void unpark(const RequestState& run);
  double background_share();
  double shared_step_s() const;
  bool work_behind();
  void pause();

  // engine_share.cc
  bool in_flight(const RequestState& run) const;
  bool await_form(RequestState& run);
  bool await_other(RequestState& run);
  void count_shared(RequestState& run);
  bool share_loads();
  bool being_asked(const RequestState& run) const;

  // engine_preempt.cc
  bool can_compute_again(const RequestState& run) const;
  bool preempt_one(const RequestState& needy);
  void preempt(RequestState& run);
  bool bring_back(RequestState& run);
  void let_spilled_go(RequestState& run);
  bool move_spilled();

  // engine_repetition.cc
  RequestState* waits_for_repetition() const;
  bool ensure_free(RequestState* run, std::uint32_t blocks);
  bool step_repetition();

  // engine_guest.cc
  bool guest_waits() const { return guest && !guest->done && !guest->given_up; }
  bool crowded();
  std::uint32_t decoding() const;
  std::uint32_t guest_tokens_joined() const;
  bool guest_joins(std::span<const BatchPart> parts);
  std::uint32_t guest_count() const;
  std::uint64_t guest_behind() const;
  bool give_up_guest_beyond(std::uint32_t tokens);
  Result<std::optional<std::span<const float>>> compute_guest_alone();
  void give_up_guest();
  void fail_guest(const Error& error);
  void finish_guest(std::span<const float> logits, double seconds, bool charged);
  bool step_guest();
  void earn_for_guests(double share, double used_s);

  // engine_step.cc
  bool step();
  bool step_ahead_of_loading();
  Status check_prompt(const RequestState& run) const;
  Status prepare_method(RequestState& run) const;
  Status prepare_budget(RequestState& run) const;
  void set_length(RequestState& run) const;
  Status prepare(RequestState& run) const;
  bool reserve(RequestState& run, std::uint32_t tokens);
  bool run_batch(std::vector<BatchPart> parts);
  Result<std::span<const float>> compute(std::span<const BatchPart> parts);
  Result<std::span<const float>> compute_apart(std::span<BatchPart> parts);
  Result<std::span<const float>> compute_with_guest(std::span<const BatchPart> parts);
  void finish_step(std::span<const BatchPart> parts, std::span<const float> logits, double seconds);
  void computed(RequestState& run, std::uint32_t count, double seconds);
  void rate_prompt(RequestState& run, std::uint32_t first, std::span<const float> logits);
  void prompt_computed(RequestState& run);
  void draw(RequestState& run, std::span<const float> logits);
  std::optional<StopReason> ends_with(const RequestState& run, Token token) const;
  std::optional<StopReason> say(RequestState& run, Token token);
  void cut_prompt(RequestState& run);
  void return_windows(RequestState& run);
  void keep_budgets(std::span<const BatchPart> parts, double step_seconds);
  bool pack_budgets(RequestState& needy);
  void in_budget(RequestState& run, const std::function<void(const EnsureOwned&)>& work);

  // engine.cc
  void finish(RequestState& run, StopReason reason, std::optional<Error> error = std::nullopt);
};

}  // namespace shale
