#include <algorithm>
#include <functional>
#include <utility>

#include "engine/engine_state.h"

namespace shale {

namespace {

// A token of an answer counts as so many of a prompt in what a tenant was served, as in the paper (fair_shares.h).
constexpr double kAnswerTokenCharge = 2;

// The step of a run alone: each layer as soon as what it needs has come.
class AsLoaded final : public StepHooks {
 public:
  AsLoaded(Retrieval& retrieval, Executor& executor) : retrieval_(retrieval), executor_(executor) {}

  bool ready(std::uint32_t layer) override {
    while (!failed_ && !retrieval_.layer_loaded(layer)) {
      const auto decoded = retrieval_.poll(executor_, 0);
      failed_ = !decoded;
      if (!decoded || !*decoded) return false;
    }
    return !failed_;
  }
  bool failed() const { return failed_; }

 private:
  Retrieval& retrieval_;
  Executor& executor_;
  bool failed_ = false;
};

}  // namespace

// Room for `tokens` more, other runs' at last. False where the run is the one to preempt.
bool Engine::State::reserve(RequestState& run, std::uint32_t tokens) {
  while (!blocks.append(run, tokens)) {
    if (!pack_budgets(run) && !preempt_one(run)) return false;
  }
  return true;
}

bool Engine::State::step() {
  const bool whole = parked && !parked->run->loading();  // what is left of its step is less than all of it again
  if (whole || !BatchBuilder::any(scheduler.running())) return step_ahead_of_loading();
  unpark();
  batches.between(clock.now_s() - stepped_s);
  std::vector<BatchPart> chosen = batches.choose(scheduler.running());
  std::vector<BatchPart> parts;
  for (BatchPart& part : chosen) {
    RequestState& run = *part.run;
    if (run.over || !scheduler.is_running(&run)) continue;  // it was preempted for one before it
    part.capture = storing.capture_for(run);
    if (reserve(run, static_cast<std::uint32_t>(part.chunk.tokens.size()))) {
      parts.push_back(std::move(part));
    } else {
      preempt(run);
    }
  }
  return !parts.empty() && run_batch(std::move(parts));
}

Result<std::span<const float>> Engine::State::compute(std::span<const BatchPart> parts) {
  const std::vector<StepSequence> sequences = step_sequences(parts);
  if (model.quick(sequences)) {
    for (const BatchPart& part : parts) part.run->reproducible = std::min(part.run->reproducible, part.length);
  }
  return model.step(sequences);
}

// Where exact answers have weights of their own, prompts beside them take a step of their own. Reorders the parts;
// logits are in their order.
Result<std::span<const float>> Engine::State::compute_apart(std::span<BatchPart> parts) {
  using enum StepSequence::Role;
  const auto is_answer = [](const BatchPart& part) { return part.role() == kAnswer; };
  if (!model.answers_apart() || std::ranges::none_of(parts, is_answer)) return compute(parts);
  const auto prompts = std::ranges::stable_partition(parts, [](const auto& part) { return part.role() != kPrompt; });
  if (prompts.empty()) return compute(parts);
  SHALE_ASSIGN(const auto of_answers, compute(parts.first(parts.size() - prompts.size())));
  both.assign(of_answers.begin(), of_answers.end());
  SHALE_ASSIGN(const auto of_prompts, compute(prompts));
  both.insert(both.end(), of_prompts.begin(), of_prompts.end());
  return both;
}

bool Engine::State::run_batch(std::vector<BatchPart> parts) {
  const double start_s = clock.now_s();
  bool with_guest = guest_joins(parts);
  auto rows = with_guest ? compute_with_guest(parts) : compute_apart(parts);
  if (!rows && with_guest) {  // that may be the guest's fault
    fail_guest(rows.error());
    with_guest = false;
    rows = compute_apart(parts);
  }
  stepped_s = clock.now_s();
  step_s = stepped_s - start_s;
  ++stats.steps;
  if (!rows) {
    for (const BatchPart& part : parts) finish(*part.run, StopReason::kError, rows.error());
    return true;
  }
  if (!with_guest) {
    finish_step(parts, *rows, batches.took(parts, step_s));
    return true;
  }
  std::size_t own_rows = 0;
  for (const BatchPart& part : parts) own_rows += part.chunk.logits_rows();
  const double guests_s =
      batches.took_with_guest(static_cast<std::uint32_t>(parts.size()), guest_count(), guest_behind(), step_s);
  step_s -= guests_s;
  finish_guest(rows->subspan(own_rows * model.info().vocabulary), guests_s, true);
  finish_step(parts, *rows, 0);
  return true;
}

// While nobody else can be computed, the first that is loading begins with the layers that are there. Others that come
// to be computed before its next layer has come put an end to it; what is watched for scorers would not bear that.
bool Engine::State::step_ahead_of_loading() {
  std::optional<AsLoaded> hooks;
  Result<std::optional<std::span<const float>>> logits = std::nullopt;
  const bool was_loading = !parked || parked->run->bytes_missing();
  if (parked) {
    hooks.emplace(parked->run->retrieval, model.executor());
    logits = model.resume(&*hooks);
  } else {
    if (waits_for_repetition()) return false;  // it would put an end to the step
    const auto& running = scheduler.running();
    const auto first =
        std::ranges::find_if(running, [](const auto& run) { return !run->over && run->looks_up() && run->loading(); });
    if (first == running.end()) return false;
    RequestState& run = **first;
    if (run.compress_once_loaded || run.repetition || run.compression) return false;
    if (!run.retrieval.layer_loaded(0) || storing.capture_for(run)) return false;
    parked = BatchPart{.run = &run, .chunk = run.next(options.chunk_tokens), .length = run.sequence.length()};
    if (!blocks.append(run, static_cast<std::uint32_t>(parked->chunk.tokens.size()))) {
      parked.reset();
      return false;
    }
    give_up_guest();
    hooks.emplace(run.retrieval, model.executor());
    logits = model.begin(step_sequences({&*parked, 1}), &*hooks);
  }
  RequestState& run = *parked->run;
  if (hooks->failed()) {
    retry(run);
    return true;
  }
  if (logits && !*logits) return false;
  if (was_loading && logits) loaded(run);
  ++stats.steps;
  stepped_s = clock.now_s();
  const BatchPart part = *std::exchange(parked, std::nullopt);
  if (logits) {
    finish_step({&part, 1}, **logits, 0);
  } else {
    finish(run, StopReason::kError, logits.error());
  }
  return true;
}

// `seconds` of computing prompts; 0 where loading took part.
void Engine::State::finish_step(std::span<const BatchPart> parts, std::span<const float> logits, double seconds) {
  const std::uint32_t vocabulary = model.info().vocabulary;
  std::uint32_t prompt_tokens = 0;
  for (const BatchPart& part : parts) prompt_tokens += part.prompt_tokens();
  const double token_s = seconds / std::max(1u, prompt_tokens);
  for (const BatchPart& part : parts) {
    RequestState& run = *part.run;
    const std::span<const float> rows = logits.first(part.chunk.logits_rows() * vocabulary);
    logits = logits.subspan(rows.size());
    if (part.chunk.rates && !run.over) rate_prompt(run, part.length + 1, rows);
    const bool was_prompt = part.length < run.prompt.size();
    if (was_prompt) {
      const auto tokens = static_cast<std::uint32_t>(part.chunk.tokens.size());
      if (parts.size() == 1 && seconds > 0) cache.note_prefill(tokens, part.length, seconds);
      computed(run, tokens, token_s * tokens);
    }
    stats.decode_tokens += !was_prompt && part.chunk.draws;
    // Unless it failed, was cancelled by another's callback, or starts over.
    if (part.chunk.draws && !run.over && !run.prefilling()) draw(run, rows.last(vocabulary));
  }
  keep_budgets(parts, step_s);
}

// `count` tokens of the prompt, in so many seconds.
void Engine::State::computed(RequestState& run, std::uint32_t count, double seconds) {
  const std::uint32_t end = run.sequence.length();
  const std::size_t span = run.span_at(end - count);
  stats.prefill_tokens += count;
  run.span_timed[span].tokens += seconds > 0 ? count : 0;
  run.span_timed[span].seconds += seconds;
  if (span < run.span_end.size() && end == run.span_end[span]) {
    if (Status status = storing.span_computed(run, span); !status) {
      finish(run, StopReason::kError, std::move(status).error());
    }
  }
  // After the last chunk the first token goes out first.
  if (run.prefilling() && !run.over) cut_prompt(run);
}

// Why a token ends the answer by itself.
std::optional<StopReason> Engine::State::ends_with(const RequestState& run, Token token) const {
  if (tokenizer.ends_turn(token) && !run.request.ignore_end) return StopReason::kEndOfTurn;
  const auto& stops = run.request.stop_tokens;
  return std::ranges::find(stops, token) != stops.end() ? std::optional(StopReason::kStopToken) : std::nullopt;
}

// Makes a token part of the answer; returns why it ends there.
std::optional<StopReason> Engine::State::say(RequestState& run, Token token) {
  run.response.tokens.push_back(token);
  const std::string text = tokenizer.text({&token, 1});
  run.response.unspoken = run.response.unspoken || text.empty();
  const std::string piece = run.stream.push(text);
  if (!piece.empty() && run.request.on_text) run.request.on_text(piece);
  if (run.stream.stopped()) return StopReason::kStopString;
  if (run.response.tokens.size() >= run.max_tokens) return StopReason::kLength;
  if (run.sequence.length() + 1 >= model.info().context_max) return StopReason::kContextFull;
  return std::nullopt;
}

// A row of logits each rates the prompt's tokens from `first` on; that of its last token rates the answer's.
void Engine::State::rate_prompt(RequestState& run, std::uint32_t first, std::span<const float> logits) {
  const std::uint32_t vocabulary = model.info().vocabulary;
  const std::size_t rows = std::min(logits.size() / vocabulary, run.prompt.size() - first);
  model.executor().parallel_for(rows, [&](std::size_t row) {
    const Token token = run.prompt[first + row];
    run.prompt_logprobs[first + row] =
        logprobs_of(logits.subspan(row * vocabulary, vocabulary), token, *run.request.prompt_logprobs);
  });
}

// Once its first token went out, if it has any.
void Engine::State::prompt_computed(RequestState& run) {
  run.retrieval = Retrieval();
  storing.prompt_done(run);
  rematch_waiting();
  return_windows(run);
  cut_prompt(run);
}

void Engine::State::draw(RequestState& run, std::span<const float> logits) {
  const double now_s = clock.now_s();
  const bool first = run.drawn.empty();
  if (first && run.request.on_prompt) run.request.on_prompt(std::exchange(run.prompt_logprobs, {}));
  if (run.over) return;  // its callback cancelled it
  if (run.request.prompt_only) {
    prompt_computed(run);
    return finish(run, StopReason::kLength);
  }
  const Token token = run.sampler.sample(logits);
  if (!first) run.response.gaps_seconds.push_back(static_cast<float>(now_s - run.last_token_s));
  run.last_token_s = now_s;
  run.share->charge(kAnswerTokenCharge);
  if (first) run.first_token_s = now_s;
  run.drawn.push_back(token);
  if (run.request.on_token) {
    const std::optional<std::uint32_t> top = run.request.logprobs;
    run.request.on_token({token, top ? std::optional(logprobs_of(logits, token, *top)) : std::nullopt});
  }
  if (run.over) return;

  std::optional<StopReason> stop = ends_with(run, token);
  if (stop && !(stop == StopReason::kStopToken && run.request.include_stop)) {
    run.response.end_token = token;
  } else {
    const auto beyond = say(run, token);
    if (run.over) return;
    if (!stop || beyond == StopReason::kStopString) stop = beyond;
  }
  if (first) prompt_computed(run);
  if (stop) finish(run, *stop);
}

// What the budget takes of the prompt computed so far.
void Engine::State::cut_prompt(RequestState& run) {
  if (!run.budget) return;
  in_budget(run, [&](const EnsureOwned& ensure_owned) {
    run.budget->chunk_done(run.sequence, !run.prefilling(), model.executor(), ensure_owned);
  });
}

// Frees what holes, and blocks that are the prefix cache's, too, keep from the pool: of one run, if possible the needy.
bool Engine::State::pack_budgets(RequestState& needy) {
  const auto pack = [this](RequestState& run) {
    bool freed = false;
    if (!run.budget || run.over) return freed;
    in_budget(run, [&](const EnsureOwned& ensure_owned) {
      freed = run.budget->pack(run.sequence, model.executor(), ensure_owned);
    });
    return freed;
  };
  return pack(needy) || std::ranges::any_of(scheduler.running(), [&](const auto& run) { return pack(*run); });
}

// Pages that lie behind a layer's sliding window return to the pool: no later query sees them, so the sequence stays
// exact. Not of a turn that will be stored whole.
void Engine::State::return_windows(RequestState& run) {
  const std::vector<std::uint32_t>& windows = model.info().windows;
  const std::uint32_t length = run.sequence.length();
  const bool windowed =
      std::ranges::any_of(windows, [length](std::uint32_t each) { return each > 0 && each <= length; });
  if (!windowed || run.request.store_answer || run.sequence.has_overlay()) return;
  if (length < run.windows_returned_at + kWindowInterval) return;
  run.windows_returned_at = length;
  run.sequence.part();
  const PageShape& shape = cache.pool().shape();
  std::vector<std::vector<std::uint32_t>> behind(shape.pages_per_block());
  for (std::uint32_t i = 0; i < behind.size(); ++i) {
    const std::uint32_t layer = i / shape.kv_heads, head = i % shape.kv_heads;
    if (windows[layer] == 0) continue;
    const auto positions = run.sequence.positions(layer, head);
    for_each_token(run.sequence.table(layer, head).pages, shape.block_size, [&](std::uint32_t slot) {
      if (positions[slot] + windows[layer] <= length) behind[i].push_back(slot);
    });
  }
  run.sequence.drop(behind, false);
}

// Evicts and compacts where it is due, for about half of what the step took: the fullest runs first, the others after
// the next steps.
void Engine::State::keep_budgets(std::span<const BatchPart> parts, double step_seconds) {
  std::vector<RequestState*> due;
  for (const BatchPart& part : parts) {
    RequestState* run = part.run;
    if (!run->over && !run->prefilling()) return_windows(*run);
    const bool decodes = !run->over && run->budget && !run->prefilling() && !run->drawn.empty();
    if (decodes && run->budget->due(run->sequence)) due.push_back(run);
  }
  const auto fullness = [](const RequestState* run) { return run->budget->occupancy(run->sequence); };
  std::ranges::sort(due, std::greater(), fullness);
  const double begun_s = clock.now_s();
  for (RequestState* run : due) {
    in_budget(*run, [&](const EnsureOwned& ensure_owned) {
      run->budget->work(run->sequence, model.executor(), ensure_owned);
    });
    if (clock.now_s() - begun_s > step_seconds / 2) return;
  }
}

// Counts what the run's budget does in `work`.
void Engine::State::in_budget(RequestState& run, const std::function<void(const EnsureOwned&)>& work) {
  const KvBudgetStats before = run.budget->stats();
  const double start_s = clock.now_s();
  work([this](const Sequence& sequence) { blocks.ensure_owned(sequence); });
  stats.budget_seconds += clock.now_s() - start_s;
  stats.budgets += run.budget->stats() - before;
  run.response.budget = run.budget->stats();
}

}  // namespace shale
