#include "engine/engine.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <utility>

#include "engine/run.h"

namespace shale {

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfTurn:
      return "end_of_turn";
    case StopReason::kStopString:
      return "stop_string";
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

std::uint32_t& CachedTokens::of(std::optional<TierKind> kind) {
  if (!kind) return pool;
  switch (*kind) {
    case TierKind::kMemory:
      return memory;
    case TierKind::kDisk:
      return disk;
    case TierKind::kRemote:
      return remote;
  }
  return remote;
}

namespace {

// Loading overlaps with computation: before each layer, what that layer needs.
class LoadHooks final : public StepHooks {
 public:
  LoadHooks(std::span<Run* const> runs, Executor& executor) : runs_(runs), executor_(executor) {}

  Status before_attention(std::uint32_t layer) override {
    for (Run* run : runs_) SHALE_TRY(run->retrieval.ensure_layer(layer, executor_));
    return {};
  }

 private:
  std::span<Run* const> runs_;
  Executor& executor_;
};

}  // namespace

struct Engine::State {
  EngineOptions options;
  Model& model;
  const Tokenizer& tokenizer;
  Cache& cache;
  const Clock& clock;

  std::deque<std::unique_ptr<Run>> waiting = {};
  std::vector<std::unique_ptr<Run>> running = {};
  std::vector<Response> done = {};
  EngineStats stats = {};
  RequestId next_id = 1;

  std::uint32_t slabs_for(const Run& run) const;
  void admit();
  void begin(Run& run);
  Status fetch(Run& run);
  void retry(Run& run);
  bool reserve(Run& run, std::uint32_t tokens);
  std::vector<Run*> choose_batch() const;
  void step();
  void recover(std::span<Run* const> batch, std::span<const std::uint32_t> lengths, const Error& error);
  void computed(Run& run, const Run::Stretch& stretch, StoredQueries queries, double seconds);
  Status end_segment(Run& run, std::size_t segment);
  Status compress_segment(Run& run, std::size_t segment);
  Cache::NewEntry entry_of(Run& run, std::size_t segment) const;
  EntryKey parent_of(const Run& run, std::size_t segment) const;
  void draw(Run& run, std::span<const float> logits);
  void first_token(Run& run);
  void finish(Run& run, StopReason reason, std::optional<Error> error = std::nullopt);
  void reap();
};

Engine::Engine(const EngineOptions& options, Model& model, const Tokenizer& tokenizer, Cache& cache, const Clock& clock)
    : state_(new State{.options = options, .model = model, .tokenizer = tokenizer, .cache = cache, .clock = clock}) {}

Engine::~Engine() = default;

Model& Engine::model() { return state_->model; }
const Tokenizer& Engine::tokenizer() const { return state_->tokenizer; }
Cache& Engine::cache() { return state_->cache; }
EngineStats Engine::stats() const { return state_->stats; }

// ---------------------------------------------------------------------------------------------------------------------
// Admission

// All its tokens, one slab more for a shared last slab that is copied, and a second copy of the prompt while a method
// that the request names is applied.
std::uint32_t Engine::State::slabs_for(const Run& run) const {
  const PageShape& shape = cache.pool().shape();
  const std::uint32_t whole = shape.pages_for(std::min(run.tokens_max(), model.info().context_max)) + 1;
  return run.request.demand.named() ? whole + shape.pages_for(static_cast<std::uint32_t>(run.prompt.size())) + 1
                                    : whole;
}

Result<RequestId> Engine::submit(Request request) {
  State& s = *state_;
  auto run = std::make_unique<Run>(s.next_id, std::move(request), s.cache.pool(), s.clock.now_s());
  const std::uint32_t context_max = s.model.info().context_max;
  const auto refuse = [&](ErrorCode code, std::string message) {
    ++s.stats.refused;
    return std::unexpected(Error{code, std::move(message)});
  };
  if (run->request.segments.empty() || run->request.segments.back().tokens.empty()) {
    return refuse(ErrorCode::kInvalidArgument, "the prompt is empty: give at least one token after the context");
  }
  if (run->request.max_tokens == 0) {
    return refuse(ErrorCode::kInvalidArgument, "max_tokens is 0: ask for at least one token");
  }
  if (run->prompt.size() >= context_max) {
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("the prompt has {} tokens and the model's context holds {}: shorten it by at least {}",
                              run->prompt.size(), context_max, run->prompt.size() - context_max + 1));
  }
  for (const Token token : run->prompt) {
    if (token < 0 || static_cast<std::uint32_t>(token) >= s.model.info().vocabulary) {
      return refuse(ErrorCode::kInvalidArgument,
                    fmt::format("token {} is not in the model's vocabulary of {}", token, s.model.info().vocabulary));
    }
  }
  const Demand& demand = run->request.demand;
  if (!(demand.keep > 0 && demand.keep <= 1)) {
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("keep is {}: it must be above 0 and at most 1", demand.keep));
  }
  if (demand.method && demand.method->scorer.empty() && demand.keep < 1) {
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("method {} keeps every token: name a scorer with it, as in knorm+int8, for keep {}",
                              demand.method->text(), demand.keep));
  }
  if (const std::uint32_t slabs = s.slabs_for(*run); slabs > s.cache.pool().slabs_total()) {
    return refuse(
        ErrorCode::kFull,
        fmt::format("the request may need {} pages per head and the pool has {}: shorten it, lower max_tokens "
                    "or enlarge the pool",
                    slabs, s.cache.pool().slabs_total()));
  }
  s.waiting.push_back(std::move(run));
  return s.next_id++;
}

void Engine::State::admit() {
  const auto promised = [&] {
    std::uint32_t slabs = 0;
    for (const auto& run : running) slabs += slabs_for(*run);
    return slabs;
  };
  while (!waiting.empty() && running.size() < options.sequences_max &&
         (running.empty() || promised() + slabs_for(*waiting.front()) <= cache.pool().slabs_total())) {
    running.push_back(std::move(waiting.front()));
    waiting.pop_front();
    begin(*running.back());
  }
}

void Engine::State::begin(Run& run) {
  run.started_s = clock.now_s();
  run.response.queue_seconds = run.started_s - run.submitted_s;
  Status status = fetch(run);
  if (!status) run.retrieval.failure() ? retry(run) : finish(run, StopReason::kError, status.error());
}

// Starts over without the object that could not be read; each turn of the loop removes one.
void Engine::State::retry(Run& run) {
  Status status;
  do {
    ++stats.retried;
    run.sequence.clear();
    cache.report_failure(std::exchange(run.retrieval, Retrieval()));
    status = fetch(run);
  } while (!status && run.retrieval.failure());
  if (!status) finish(run, StopReason::kError, status.error());
}

Status Engine::State::fetch(Run& run) {
  const bool named = run.request.demand.named();
  const auto stored = static_cast<std::size_t>(std::ranges::find_if(run.request.segments, &Segment::store) -
                                               run.request.segments.begin());
  // Exact KV past the segment that a method is applied to would be of no use.
  const bool apply = named && stored + 1 < run.request.segments.size();
  const std::span<const Token> wanted = apply ? std::span<const Token>(run.prompt).first(run.segment_end[stored] + 1)
                                              : std::span<const Token>(run.prompt);
  if (run.request.use_cache) run.retrieval = cache.retrieve(wanted, run.request.demand, run.sequence);

  run.computed_from = run.sequence.length();
  run.response.lossy = run.retrieval.lossy();
  run.response.sources = run.retrieval.sources();
  run.response.cached = {};
  for (const SourceUsed& source : run.response.sources) run.response.cached.of(source.kind) += source.tokens;
  if (apply && run.computed_from == run.segment_end[stored] && !run.sequence.lossy())
    return compress_segment(run, stored);
  return {};
}

// ---------------------------------------------------------------------------------------------------------------------
// Steps

// Room for `tokens` more: free slabs, then the prefix tree's, then what background work holds.
bool Engine::State::reserve(Run& run, std::uint32_t tokens) {
  const std::uint32_t slabs = cache.pool().shape().pages_for(tokens) + 1;
  if (run.sequence.append(tokens)) return true;
  if (cache.make_room(slabs) && run.sequence.append(tokens)) return true;
  cache.drain(model.executor());
  static_cast<void>(cache.make_room(slabs));
  return run.sequence.append(tokens).has_value();
}

// Every decoding run, and the oldest run that is still prefilling.
std::vector<Run*> Engine::State::choose_batch() const {
  std::vector<Run*> batch;
  const Run* prefilling = nullptr;
  for (const auto& run : running) {
    if (run->prefilling() && prefilling) continue;
    if (run->prefilling()) prefilling = run.get();
    batch.push_back(run.get());
  }
  return batch;
}

void Engine::State::step() {
  std::vector<Run*> batch;
  std::vector<Run::Stretch> stretches;
  std::vector<std::uint32_t> lengths;
  for (Run* run : choose_batch()) {
    const std::uint32_t length = run->sequence.length();
    Run::Stretch stretch = run->next(options.chunk_tokens, options.query_window);
    if (!reserve(*run, static_cast<std::uint32_t>(stretch.tokens.size()))) {
      finish(*run, StopReason::kError,
             Error{ErrorCode::kFull, "the page pool ran out while the request was under way: enlarge the pool"});
      continue;
    }
    batch.push_back(run);
    lengths.push_back(length);
    stretches.push_back(std::move(stretch));
  }
  if (batch.empty()) return;

  const ModelInfo& info = model.info();
  std::vector<StoredQueries> queries(batch.size());
  std::vector<StepSequence> sequences(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    sequences[i] = {.sequence = &batch[i]->sequence,
                    .tokens = stretches[i].tokens,
                    .logits_all = false,
                    .logits_none = !stretches[i].ends_prompt};
    if (const std::uint32_t window = stretches[i].query_window; window > 0) {
      queries[i] = {
          .layers = info.layers, .query_heads = info.query_heads, .window = window, .head_dim = info.head_dim};
      queries[i].values.resize(std::size_t{info.layers} * info.query_heads * window * info.head_dim);
      sequences[i].queries = queries[i].values.data();
      sequences[i].query_window = window;
    }
  }
  LoadHooks hooks(batch, model.executor());
  const double start_s = clock.now_s();
  const auto logits = model.step(sequences, &hooks);
  const double seconds = clock.now_s() - start_s;
  ++stats.steps;
  if (!logits) return recover(batch, lengths, logits.error());

  std::size_t row = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Run& run = *batch[i];
    const bool was_prefilling = lengths[i] < run.prompt.size();
    if (was_prefilling) computed(run, stretches[i], std::move(queries[i]), batch.size() == 1 ? seconds : 0);
    stats.decode_tokens += !was_prefilling;
    if (stretches[i].ends_prompt) draw(run, logits->subspan(row++ * info.vocabulary, info.vocabulary));
  }
}

// A failed load restarts its request without the damaged object; the others repeat the step.
void Engine::State::recover(std::span<Run* const> batch, std::span<const std::uint32_t> lengths, const Error& error) {
  const bool load_failed =
      std::ranges::any_of(batch, [](const Run* run) { return run->retrieval.failure().has_value(); });
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Run& run = *batch[i];
    if (run.retrieval.failure()) {
      retry(run);
    } else if (load_failed) {
      run.sequence.truncate(lengths[i]);
    } else {
      finish(run, StopReason::kError, error);
    }
  }
}

// `seconds` of computing the stretch, 0 where other runs shared the step.
void Engine::State::computed(Run& run, const Run::Stretch& stretch, StoredQueries queries, double seconds) {
  const auto count = static_cast<std::uint32_t>(stretch.tokens.size());
  const std::uint32_t end = run.sequence.length();
  const std::size_t segment = run.segment_at(end - count);
  stats.prefill_tokens += count;
  // A step that waited for loading says nothing of computing.
  if (seconds > 0 && (run.computed_from == 0 || end - count > run.computed_from)) {
    run.segment_seconds[segment] += seconds;
    cache.note_prefill(count, end - count, seconds);
  }
  if (!queries.empty()) run.segment_queries[segment] = std::move(queries);
  if (end == run.segment_end[segment]) {
    if (const Status status = end_segment(run, segment); !status) finish(run, StopReason::kError, status.error());
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Segments become entries

EntryKey Engine::State::parent_of(const Run& run, std::size_t segment) const {
  EntryKey key;
  for (std::size_t i = 0; i < segment; ++i) {
    key = cache.key_of({.parent = key,
                        .first_position = 0,
                        .tokens = run.request.segments[i].tokens,
                        .queries = {},
                        .recompute_s = 0,
                        .label = {},
                        .placed_as = std::nullopt});
  }
  return key;
}

Cache::NewEntry Engine::State::entry_of(Run& run, std::size_t segment) const {
  const std::uint32_t first = segment == 0 ? 0 : run.segment_end[segment - 1];
  return {.parent = parent_of(run, segment),
          .first_position = first,
          .tokens = run.request.segments[segment].tokens,
          .queries = std::move(run.segment_queries[segment]),
          .recompute_s = run.computed_from <= first ? run.segment_seconds[segment] : 0,
          .label = run.request.segments[segment].label,
          .placed_as = std::nullopt};
}

Status Engine::State::end_segment(Run& run, std::size_t segment) {
  if (run.request.demand.named() && run.request.segments[segment].store && !run.sequence.lossy()) {
    return compress_segment(run, segment);
  }
  return {};
}

// The method that the request names, applied to a segment that is exact so far; what follows attends to the result.
Status Engine::State::compress_segment(Run& run, std::size_t segment) {
  const Demand& demand = run.request.demand;
  SHALE_TRY(run.retrieval.ensure_all(model.executor()));
  Cache::NewEntry entry = entry_of(run, segment);
  if (entry.queries.empty() && run.computed_from > entry.first_position) {
    entry.queries = cache.stored_queries(cache.key_of(entry));
    if (entry.queries.empty() && cache.needs_queries(*demand.method)) {
      // Exact pages without the queries that rank them: they are computed again.
      run.retrieval = Retrieval();
      run.sequence.clear();
      run.computed_from = 0;
      run.response.cached = {};
      run.response.sources.clear();
      return {};
    }
  }
  SHALE_ASSIGN(const ObjectBytes object, cache.compress(entry, *demand.method, run.sequence, model.executor()));
  Sequence compressed(cache.pool());
  if (entry.first_position > 0) {
    compressed.adopt_prefix(run.sequence.slabs(entry.first_position), entry.first_position);
  }
  SHALE_TRY(cache.decompress(object, demand.keep, compressed, model.executor()));

  // Kept where the next process finds it.
  const auto& tiers = cache.tiers();
  const auto disk = std::ranges::find_if(tiers, [](const auto& tier) { return tier->kind() == TierKind::kDisk; });
  entry.placed_as = Configuration{.method = *demand.method,
                                  .keep = demand.keep,
                                  .tier = disk == tiers.end() ? 0 : static_cast<std::uint32_t>(disk - tiers.begin())};
  cache.remember(std::span(run.prompt).first(run.sequence.length()), run.sequence);
  cache.store(std::move(entry), run.sequence);
  run.sequence = std::move(compressed);
  run.response.lossy = true;
  return {};
}

// ---------------------------------------------------------------------------------------------------------------------
// Answers

void Engine::State::draw(Run& run, std::span<const float> logits) {
  const double now_s = clock.now_s();
  const bool first = run.drawn.empty();
  const Token token = run.sampler.sample(logits);
  run.last_token_s = now_s;
  if (first) run.first_token_s = now_s;
  run.drawn.push_back(token);

  std::optional<StopReason> stop;
  if (tokenizer.ends_turn(token)) {
    stop = StopReason::kEndOfTurn;
  } else {
    run.response.tokens.push_back(token);
    const std::string piece = run.stream.push(tokenizer.text({&token, 1}));
    if (!piece.empty() && run.request.on_text) run.request.on_text(piece);
    if (run.stream.stopped()) {
      stop = StopReason::kStopString;
    } else if (run.response.tokens.size() >= run.request.max_tokens) {
      stop = StopReason::kLength;
    } else if (run.sequence.length() + 1 >= model.info().context_max) {
      stop = StopReason::kContextFull;
    }
  }
  if (first) first_token(run);
  if (stop) finish(run, *stop);
}

// Nobody waits for a first token any more: the prompt's pages are shared, its segments queued for storing.
void Engine::State::first_token(Run& run) {
  run.retrieval = Retrieval();
  if (run.sequence.lossy()) return;
  cache.remember(run.prompt, run.sequence);
  for (std::size_t segment = 0; segment < run.request.segments.size(); ++segment) {
    const bool computed_here = run.computed_from < run.segment_end[segment];
    if (run.request.segments[segment].store && computed_here) cache.store(entry_of(run, segment), run.sequence);
  }
}

void Engine::State::finish(Run& run, StopReason reason, std::optional<Error> error) {
  Response& response = run.response;
  response.stop = reason;
  response.error = std::move(error);
  const std::string rest = run.stream.finish();
  if (!rest.empty() && run.request.on_text) run.request.on_text(rest);
  response.text = run.stream.text();
  if (!run.drawn.empty()) response.ttft_seconds = run.first_token_s - run.submitted_s;
  if (run.drawn.size() > 1) {
    response.tpot_seconds = (run.last_token_s - run.first_token_s) / static_cast<double>(run.drawn.size() - 1);
  }
  if (reason != StopReason::kError && !run.sequence.lossy() && !run.prefilling()) {
    // The last token drawn was never computed: the sequence ends before it.
    std::vector<Token> tokens = run.prompt;
    tokens.insert(tokens.end(), run.drawn.begin(), run.drawn.end());
    tokens.resize(run.sequence.length());
    cache.remember(tokens, run.sequence);
    if (run.request.store_answer && !run.drawn.empty()) {
      const std::size_t last = run.request.segments.size() - 1;
      const std::uint32_t first = last == 0 ? 0 : run.segment_end[last - 1];
      cache.store({.parent = parent_of(run, last),
                   .first_position = first,
                   .tokens = {tokens.begin() + first, tokens.end()},
                   .queries = {},
                   .recompute_s = 0,
                   .label = run.request.segments[last].label,
                   .placed_as = std::nullopt},
                  run.sequence);
    }
  }
  done.push_back(std::move(response));
  run.over = true;
}

void Engine::State::reap() {
  std::erase_if(running, [](const auto& run) { return run->over; });
}

bool Engine::run_once() {
  State& s = *state_;
  s.admit();
  s.reap();
  if (s.running.empty()) return s.cache.work(s.model.executor());
  s.step();
  s.reap();
  const bool awaited =
      !s.waiting.empty() || std::ranges::any_of(s.running, [](const auto& run) { return run->drawn.empty(); });
  if (!awaited) s.cache.work(s.model.executor());
  return true;
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

void Engine::cancel(RequestId id) {
  State& s = *state_;
  for (const auto& run : s.running) {
    if (run->id == id) s.finish(*run, StopReason::kCancelled);
  }
  const auto waiting = std::ranges::find(s.waiting, id, [](const auto& run) { return run->id; });
  if (waiting != s.waiting.end()) {
    s.finish(**waiting, StopReason::kCancelled);
    s.waiting.erase(waiting);
  }
  s.reap();
}

std::vector<Response> Engine::finished() { return std::exchange(state_->done, {}); }

}  // namespace shale
