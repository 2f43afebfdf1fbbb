#include <algorithm>
#include <functional>
#include <utility>

#include "engine/engine_state.h"

namespace shale {

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

// Into free slabs; into single pages where no slab is whole.
bool Engine::State::append(Run& run, std::uint32_t tokens) {
  if (run.sequence.append(tokens)) return true;
  const PageShape& shape = cache.pool().shape();
  const bool scattered = cache.pool().pages_free() >= (shape.pages_for(tokens) + 1) * shape.pages_per_slab();
  if (!scattered || run.sequence.parted() || run.sequence.has_strata()) return false;
  run.sequence.part();
  return run.sequence.append(tokens).has_value();
}

// Room for `tokens` more: free pages, then the prefix tree's, then what background work holds, then other runs'. False
// where the run is the one to make room.
bool Engine::State::reserve(Run& run, std::uint32_t tokens) {
  const std::uint32_t slabs = cache.pool().shape().pages_for(tokens) + 1;
  if (append(run, tokens)) return true;
  if (cache.make_room(slabs) && append(run, tokens)) return true;
  cache.drain(model.executor());
  static_cast<void>(cache.make_room(slabs));
  while (!append(run, tokens)) {
    if (!preempt(run)) return false;
    static_cast<void>(cache.make_room(slabs));
  }
  return true;
}

// Every decoding run, and the first that is still prefilling.
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

// Watches a segment that is to be stored while it is computed. Lossy pages are not stored.
Capture* Engine::State::capture_for(Run& run) const {
  if (!run.prefilling_prompt() || run.sequence.lossy()) return nullptr;
  const std::size_t segment = run.segment_at(run.sequence.length());
  if (!run.request.segments[segment].store) return nullptr;
  std::unique_ptr<Capture>& capture = run.captures[segment];
  if (!capture) {
    const auto tokens = static_cast<std::uint32_t>(run.request.segments[segment].tokens.size());
    capture = std::make_unique<Capture>(model.info(), run.segment_end[segment] - tokens, tokens, run.needs);
  }
  return capture.get();
}

void Engine::State::step() {
  std::vector<Run*> batch;
  std::vector<Capture*> captures;
  std::vector<Run::Stretch> stretches;
  std::vector<std::uint32_t> lengths;
  const std::vector<Run*> chosen = choose_batch();
  const auto decoding =
      static_cast<std::uint32_t>(std::ranges::count_if(chosen, [](const Run* run) { return !run->prefilling(); }));
  const bool bounded = decoding > 0 && options.chunk_slowdown > 0;
  // Beside those who decode there is less room in a step.
  const std::uint32_t room = std::max(options.chunk_tokens, decoding + 1) - decoding;
  const std::uint32_t chunk_tokens = bounded ? std::min(chunks.tokens(), room) : room;
  for (Run* run : chosen) {
    if (run->over) continue;
    const bool gone = std::ranges::none_of(running, [run](const auto& each) { return each.get() == run; });
    if (gone) continue;  // it made room for one before it
    const std::uint32_t length = run->sequence.length();
    Capture* capture = capture_for(*run);
    Run::Stretch stretch = run->next(chunk_tokens);
    if (!reserve(*run, static_cast<std::uint32_t>(stretch.tokens.size()))) {
      make_way(*run);
      continue;
    }
    batch.push_back(run);
    captures.push_back(capture);
    lengths.push_back(length);
    stretches.push_back(std::move(stretch));
  }
  if (batch.empty()) return;

  const ModelInfo& info = model.info();
  std::vector<StepSequence> sequences(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    sequences[i] = {.sequence = &batch[i]->sequence,
                    .tokens = stretches[i].tokens,
                    .logits_all = false,
                    .logits_none = !stretches[i].draws,
                    .capture = captures[i],
                    .live = batch[i]->budget ? batch[i]->budget->capture() : nullptr};
  }
  LoadHooks hooks(batch, model.executor());
  const double start_s = clock.now_s();
  const auto logits = model.step(sequences, &hooks);
  const double seconds = clock.now_s() - start_s;
  ++stats.steps;
  if (!logits) return recover(batch, lengths, logits.error());

  const auto computed_here = static_cast<std::uint32_t>(batch.size());
  if (batch.size() == decoding) {
    chunks.decoded(decoding, seconds);
  } else if (bounded && computed_here > 1) {
    std::size_t tokens = 0;
    for (const Run::Stretch& stretch : stretches) tokens += stretch.tokens.size();
    chunks.mixed(computed_here - 1, static_cast<std::uint32_t>(tokens) - (computed_here - 1), seconds,
                 options.chunk_slowdown);
  }

  std::size_t row = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Run& run = *batch[i];
    const bool was_prompt = lengths[i] < run.prompt.size();
    if (was_prompt) computed(run, stretches[i], batch.size() == 1 ? seconds : 0);
    stats.decode_tokens += !was_prompt && stretches[i].draws;
    if (!stretches[i].draws) continue;
    const auto last = logits->subspan(row++ * info.vocabulary, info.vocabulary);
    // Unless it failed, was cancelled by another's callback, or starts over.
    if (!run.over && !run.prefilling()) draw(run, last);
  }
  keep_budgets(batch, seconds);
}

// What the budget takes of the prompt computed so far.
void Engine::State::cut_prompt(Run& run) {
  if (!run.budget) return;
  in_budget(run, [&] { run.budget->chunk_done(run.sequence, !run.prefilling(), model.executor()); });
}

// Pages that lie behind a layer's sliding window return to the pool: no later query sees them, so the sequence stays
// exact. Not of a turn that will be stored whole.
void Engine::State::return_windows(Run& run) {
  const std::vector<std::uint32_t>& windows = model.info().windows;
  const std::uint32_t length = run.sequence.length();
  const bool windowed =
      std::ranges::any_of(windows, [length](std::uint32_t each) { return each > 0 && each <= length; });
  if (!windowed || run.request.store_answer || run.sequence.has_strata()) return;
  if (length < run.windows_returned_at + kWindowInterval) return;
  run.windows_returned_at = length;
  run.sequence.part();
  const PageShape& shape = cache.pool().shape();
  std::vector<std::vector<std::uint32_t>> behind(shape.pages_per_slab());
  for (std::uint32_t i = 0; i < behind.size(); ++i) {
    const std::uint32_t layer = i / shape.kv_heads, head = i % shape.kv_heads;
    if (windows[layer] == 0) continue;
    const auto positions = run.sequence.positions(layer, head);
    for_each_token(run.sequence.table(layer, head).pages, shape.page_tokens, [&](std::uint32_t slot) {
      if (positions[slot] + windows[layer] <= length) behind[i].push_back(slot);
    });
  }
  run.sequence.drop(behind, false);
}

// Evicts and compacts where it is due, for about half of what the step took: the fullest runs first, the others after
// the next steps.
void Engine::State::keep_budgets(std::span<Run* const> batch, double step_seconds) {
  std::vector<Run*> due;
  for (Run* run : batch) {
    if (!run->over && !run->prefilling()) return_windows(*run);
    const bool decodes = !run->over && run->budget && !run->prefilling() && !run->drawn.empty();
    if (decodes && run->budget->due(run->sequence)) due.push_back(run);
  }
  const auto fullness = [](const Run* run) { return run->budget->occupancy(run->sequence); };
  std::ranges::sort(due, std::greater(), fullness);
  const double begun_s = clock.now_s();
  for (Run* run : due) {
    in_budget(*run, [&] { run->budget->work(run->sequence, model.executor()); });
    if (clock.now_s() - begun_s > step_seconds / 2) return;
  }
}

// Counts what the run's budget does in `work`.
void Engine::State::in_budget(Run& run, const std::function<void()>& work) {
  const PageBudgetStats before = run.budget->stats();
  const double start_s = clock.now_s();
  work();
  stats.budget_seconds += clock.now_s() - start_s;
  stats.budgets += run.budget->stats() - before;
  run.response.budget = run.budget->stats();
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
void Engine::State::computed(Run& run, const Run::Stretch& stretch, double seconds) {
  const auto count = static_cast<std::uint32_t>(stretch.tokens.size());
  const std::uint32_t end = run.sequence.length();
  const std::size_t segment = run.segment_at(end - count);
  stats.prefill_tokens += count;
  // A step that waited for loading says nothing of computing.
  if (seconds > 0 && (run.computed_from == 0 || end - count > run.computed_from)) {
    run.segment_seconds[segment] += seconds;
    cache.note_prefill(count, end - count, seconds);
  }
  if (end == run.segment_end[segment]) {
    if (const auto capture = std::exchange(run.captures[segment], nullptr)) {
      run.segment_observations[segment] = capture->take();
    }
    if (const Status status = end_segment(run, segment); !status) finish(run, StopReason::kError, status.error());
  }
  // After the last chunk the first token goes out first.
  if (run.prefilling() && !run.over) cut_prompt(run);
}

void Engine::State::draw(Run& run, std::span<const float> logits) {
  const double now_s = clock.now_s();
  const bool first = run.drawn.empty();
  const Token token = run.sampler.sample(logits);
  if (!first) run.response.gaps_seconds.push_back(static_cast<float>(now_s - run.last_token_s));
  run.last_token_s = now_s;
  if (first) run.first_token_s = now_s;
  run.drawn.push_back(token);

  std::optional<StopReason> stop;
  if (tokenizer.ends_turn(token) && !run.request.ignore_end) {
    stop = StopReason::kEndOfTurn;
  } else {
    run.response.tokens.push_back(token);
    const std::string piece = run.stream.push(tokenizer.text({&token, 1}));
    if (!piece.empty() && run.request.on_text) run.request.on_text(piece);
    if (run.over) return;  // the callback cancelled it
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

}  // namespace shale
