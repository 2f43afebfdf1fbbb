#include <algorithm>
#include <utility>

#include "core/random.h"
#include "engine/engine_state.h"

namespace shale {

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfTurn:
      return "end_of_turn";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kStopToken:
      return "stop_token";
    case StopReason::kLength:
      return "length";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kCancelled:
      return "cancelled";
    case StopReason::kError:
      return "error";
  }
  return "error";
}

std::optional<double> Response::expected_quality() const {
  if (!lossy) return 1;
  // Where nothing lossy was found, something else was lost: nobody knows what a KV budget drops, say.
  return std::ranges::any_of(sources, &SourceUsed::lossy) ? shale::expected_quality(sources) : std::nullopt;
}

Engine::Engine(const EngineOptions& options, Model& model, const Tokenizer& tokenizer, Cache& cache, const Clock& clock)
    : state_(new State{.options = options, .model = model, .tokenizer = tokenizer, .cache = cache, .clock = clock}) {
  state_->nonce = Hasher().add(random_number()).finish();
}

Engine::~Engine() = default;

Model& Engine::model() { return state_->model; }
const Tokenizer& Engine::tokenizer() const { return state_->tokenizer; }
Cache& Engine::cache() { return state_->cache; }
const EngineOptions& Engine::options() const { return state_->options; }
EngineStats Engine::stats() const {
  EngineStats stats = state_->stats;
  stats.threads_short_seconds = state_->model.executor().seconds_short();
  return stats;
}
std::uint32_t Engine::running() const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(state_->scheduler.running(), [](const auto& run) { return !run->over; }));
}
std::uint32_t Engine::loading() const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(state_->scheduler.running(), [](const auto& run) { return !run->over && run->loading(); }));
}
std::uint32_t Engine::waiting() const { return static_cast<std::uint32_t>(state_->scheduler.waiting()); }
std::uint32_t Engine::preempted() const { return static_cast<std::uint32_t>(state_->scheduler.preempted().size()); }

Occupancy Engine::occupancy() const {
  const PageShape& shape = state_->cache.pool().shape();
  Occupancy total;
  std::uint32_t budgets = 0;
  for (const auto& run : state_->scheduler.running()) {
    total.slots += std::uint64_t{run->sequence.pages()} * shape.block_size;
    for (std::uint32_t i = 0; i < shape.pages_per_block(); ++i) {
      total.tokens += run->sequence.resident(i / shape.kv_heads, i % shape.kv_heads);
    }
    if (!run->budget) continue;
    total.budget += run->budget->occupancy(run->sequence);
    ++budgets;
  }
  if (budgets > 0) total.budget /= budgets;
  return total;
}

Status Engine::State::check_prompt(const RequestState& run) const {
  const ModelInfo& info = model.info();
  if (run.request.spans.empty() || run.request.spans.back().tokens.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the prompt is empty: give at least one token after the context");
  }
  if (run.request.max_tokens == 0 && !run.request.prompt_only) {
    return fail(ErrorCode::kInvalidArgument, "max_tokens is 0: ask for at least one token");
  }
  const std::size_t longest = run.request.prompt_only ? info.context_max : info.context_max - 1;
  if (run.prompt.size() > longest) {
    return fail(ErrorCode::kInvalidArgument,
                "this model's maximum context length is {} tokens and the prompt has {}: shorten it by at least {}",
                info.context_max, run.prompt.size(), run.prompt.size() - longest);
  }
  for (const std::vector<Token>* tokens : {&run.prompt, &run.request.stop_tokens}) {
    for (const Token token : *tokens) {
      if (token >= 0 && static_cast<std::uint32_t>(token) < info.vocabulary) continue;
      return fail(ErrorCode::kInvalidArgument, "token {} is not in the model's vocabulary of {}", token,
                  info.vocabulary);
    }
  }
  return {};
}

Status Engine::State::prepare_method(RequestState& run) const {
  const RequestPolicy& policy = run.request.policy;
  if (policy.exact && !exact_pages()) {
    return fail(ErrorCode::kInvalidArgument,
                "an exact answer is asked for and the page pool holds int8: ask without, or start with fp16 pages");
  }
  if (!(policy.keep > 0 && policy.keep <= 1)) {
    return fail(ErrorCode::kInvalidArgument, "keep is {}: it must be above 0 and at most 1", policy.keep);
  }
  if (policy.method && policy.method->scorer.empty() && policy.keep < 1) {
    return fail(ErrorCode::kInvalidArgument,
                "method {} keeps every token: name a scorer with it, as in knorm+int8, for keep {}",
                policy.method->text(), policy.keep);
  }
  if (!policy.named()) return {};
  if (!options.prefix_cache) {
    return fail(ErrorCode::kInvalidArgument,
                "method {} is applied to what is cached, and prefix caching is off: ask without, or turn it on",
                policy.method->text());
  }
  SHALE_ASSIGN(run.needs, cache.needs(*policy.method));
  // What no computing can make good.
  const std::string missing = cache.missing({.rope = run.needs.rope, .calibration = run.needs.calibration}, 0, {});
  if (missing.empty()) return {};
  return fail(ErrorCode::kInvalidArgument, "{} needs {}", policy.method->text(), missing);
}

Status Engine::State::prepare_budget(RequestState& run) const {
  const RequestPolicy& policy = run.request.policy;
  if (!run.request.budget) return {};
  if (policy.exact) {
    return fail(ErrorCode::kInvalidArgument,
                "an exact answer is asked for, and a KV budget, which drops tokens: ask for one of them");
  }
  if (policy.named()) {
    return fail(ErrorCode::kInvalidArgument, "{} and a KV budget by {}: name one of them", policy.method->text(),
                run.request.budget->method);
  }
  SHALE_ASSIGN(run.budget, KvBudget::create(*run.request.budget, model.info(), cache.pool().shape().block_size,
                                            static_cast<std::uint32_t>(run.prompt.size()), cache.options().scorers,
                                            cache.options().model.calibration));
  return {};
}

// A length that the request does not name is what is left of the context, as far as the pool holds that.
void Engine::State::set_length(RequestState& run) const {
  const auto left = model.info().context_max - static_cast<std::uint32_t>(run.prompt.size());
  run.max_tokens = run.request.max_tokens.value_or(left);
  const std::uint32_t needed = blocks.blocks_max(run), total = cache.pool().blocks_total();
  if (run.request.max_tokens || needed <= total) return;
  const std::uint64_t excess = std::uint64_t{needed - total} * cache.pool().shape().block_size;
  run.max_tokens = static_cast<std::uint32_t>(left - std::min<std::uint64_t>(excess, left - 1));
}

// Everything that a request can be refused for.
Status Engine::State::prepare(RequestState& run) const {
  if (scheduler.waiting() >= options.waiting_max) {
    return fail(ErrorCode::kBusy, "{} requests wait already: ask again later", scheduler.waiting());
  }
  SHALE_TRY(check_prompt(run));
  SHALE_TRY(prepare_method(run));
  SHALE_TRY(prepare_budget(run));
  run.needs = run.needs | cache.needs() | ScorerNeeds{.last_queries = options.query_window};
  run.needs.repeat_attention = false;  // asked of the span's own pages, where they are there
  set_length(run);
  const std::uint32_t needed = blocks.blocks_max(run), total = cache.pool().blocks_total();
  if (needed <= total) return {};
  return fail(ErrorCode::kFull,
              "the request may need {} pages per head and the pool has {}: shorten it, lower max_tokens or enlarge the "
              "pool (--pool)",
              needed, total);
}

Result<RequestId> Engine::submit(Request request) {
  State& s = *state_;
  if (!s.options.prefix_cache) {
    request.use_cache = request.insert_prefix = request.store_answer = false;
    for (PrefixSpan& span : request.spans) span.store = false;
  }
  if (request.prompt_logprobs && !request.policy.named()) request.use_cache = false;  // what is found has no logits
  auto run = std::make_unique<RequestState>(s.next_id, std::move(request), s.cache.pool(), s.clock.now_s());
  run->response.cached = CachedTokens(s.cache.tiers());
  SHALE_TRY(s.prepare(*run));
  if (const std::string& salt = run->request.policy.salt; run->request.use_cache) {
    static_cast<void>(s.cache.store().discover(s.cache.keys_of(run->prompt, salt), tenant_of(salt)));
  }
  s.scheduler.submit(std::move(run));
  return s.next_id++;
}

void Engine::State::finish(RequestState& run, StopReason reason, std::optional<Error> error) {
  unpark(run);  // what a step that is not over appended is not computed, and must not be kept
  Response& response = run.response;
  response.stop = reason;
  response.begun = run.begun;
  if (!run.begun) response.queue_seconds = clock.now_s() - run.submitted_s;
  response.error = std::move(error);
  const std::string rest = run.stream.finish();
  if (!rest.empty() && run.request.on_text) run.request.on_text(rest);
  response.text = run.stream.text();
  if (!run.drawn.empty()) response.ttft_seconds = run.first_token_s - run.submitted_s;
  if (run.drawn.size() > 1) {
    response.tpot_seconds = (run.last_token_s - run.first_token_s) / static_cast<double>(run.drawn.size() - 1);
  }
  response.lossy = response.lossy || run.sequence.lossy() || !exact_pages();
  response.metric = cache.metric();
  if (reason != StopReason::kError) storing.answer_done(run);
  let_spilled_go(run);
  run.repetition.reset();
  run.compression.reset();
  run.retrieval = Retrieval();
  run.sequence.clear();
  done.push_back(std::move(response));
  run.over = true;
}

Response Engine::run(Request request) {
  auto id = submit(std::move(request));
  if (!id) {
    Response refused;
    refused.stop = StopReason::kError;
    refused.error = std::move(id).error();
    return refused;
  }
  while (true) {
    for (std::size_t i = 0; i < state_->done.size(); ++i) {
      if (state_->done[i].id != *id) continue;
      Response response = std::move(state_->done[i]);
      state_->done.erase(state_->done.begin() + static_cast<std::ptrdiff_t>(i));
      return response;
    }
    run_once();
  }
}

// May be called from a request's own on_text: runs are freed by run_once alone.
void Engine::cancel(RequestId id) {
  State& s = *state_;
  for (const auto* runs : {&s.scheduler.running(), &s.scheduler.preempted()}) {
    for (const auto& run : *runs) {
      if (run->id == id && !run->over) s.finish(*run, StopReason::kCancelled);
    }
  }
  if (const auto waiting = s.scheduler.withdraw(id)) s.finish(*waiting, StopReason::kCancelled);
}

std::vector<Response> Engine::finished() { return std::exchange(state_->done, {}); }

}  // namespace shale
