#include "engine/storing.h"

#include <algorithm>
#include <utility>

#include "engine/repetition.h"

namespace shale {

ContextKind kind_of(const Tokenizer& tokenizer, std::span<const Token> tokens) {
  constexpr std::size_t kSample = 384;
  const std::size_t sample = std::min(kSample, tokens.size());
  return kind_of(tokenizer.text(tokens.subspan((tokens.size() - sample) / 2, sample)));
}

Storing::Storing(Model& model, const Tokenizer& tokenizer, Cache& cache, std::uint32_t chunk_tokens)
    : model_(model),
      tokenizer_(tokenizer),
      cache_(cache),
      chunk_tokens_(chunk_tokens),
      windows_(std::ranges::any_of(model.info().windows, [](std::uint32_t window) { return window > 0; })) {}

NewRun Storing::new_run(RequestState& run, std::size_t span) const {
  NewRun part;
  part.first = run.span_begin(span);
  part.reproducible = run.reproducible;
  part.salt = run.request.policy.salt;
  part.tokens.assign(run.prompt.begin(), run.prompt.begin() + run.span_end[span]);
  part.statistics = std::move(run.span_statistics[span]);
  if (run.computed_from <= part.first) part.recompute_s = run.span_seconds[span];
  part.label = run.request.spans[span].label;
  part.kind = kind_of(tokenizer_, std::span<const Token>(part.tokens).subspan(part.first));
  return part;
}

// A layer with a window has, of what came from tiers, only what the window shows to those who come after it.
bool Storing::has_hidden_tokens(const RequestState& run) const { return windows_ && run.from_tiers; }

void Storing::store(RequestState& run, NewRun part) {
  if (has_hidden_tokens(run) && part.first < run.computed_from) {
    part.first = run.computed_from;
    part.statistics = {};
  }
  const bool whole = !run.sequence.lossy() && !run.sequence.ragged() && cache_.whole_blocks(part.tokens.size()) > 0;
  if (cache_.stores_by_repetition() && part.statistics.repeat_attention.empty() && whole) {
    const std::uint32_t more = repetition_tokens_max(static_cast<std::uint32_t>(part.tokens.size()) - part.first);
    static_cast<void>(cache_.evict_until_free(cache_.pool().shape().pages_for(more) + 1));
    static_cast<void>(repeat(run.sequence, part));  // what cannot be ranked is not stored, and counted there
  }
  cache_.store(std::move(part), run.sequence);
}

void Storing::insert_prefix(RequestState& run, std::span<const Token> tokens) {
  if (run.request.insert_prefix && !has_hidden_tokens(run))
    cache_.insert_prefix(tokens, run.sequence, run.reproducible, run.request.policy.salt);
}

Capture* Storing::capture_for(RequestState& run) const {
  const bool meets = run.retrieval.compute_until() > 0;  // what is watched is watched whole
  if (!run.prefilling_prompt() || run.sequence.lossy() || meets) return nullptr;
  const std::size_t span = run.span_at(run.sequence.length());
  if (span == run.request.spans.size() || !run.request.spans[span].store) return nullptr;
  std::unique_ptr<Capture>& capture = run.captures[span];
  if (!capture) {
    const std::uint32_t begin = run.span_begin(span);
    capture = std::make_unique<Capture>(model_.info(), begin, run.span_end[span] - begin, run.needs);
  }
  return capture.get();
}

Status Storing::span_computed(RequestState& run, std::size_t span) {
  if (const auto capture = std::exchange(run.captures[span], nullptr)) {
    run.span_statistics[span] = capture->take();
  }
  const bool named = run.request.policy.named() && run.request.spans[span].store;
  return named && !run.sequence.lossy() ? compress(run, span) : Status();
}

// Gathers what the request's method reads of a span whose exact pages are in place: what was seen while computing
// it, and what the model can be asked for now. False where the span has to be computed again for the rest.
Result<bool> Storing::observe(RequestState& run, NewRun& part) {
  SHALE_ASSIGN(const ScorerNeeds needs, cache_.needs(*run.request.policy.method));
  ScorerNeeds of_computing = needs;
  of_computing.repeat_attention = false;
  const auto tokens = std::span<const Token>(part.tokens).subspan(part.first);
  const auto lacks = [&](const ScorerNeeds& some) {
    return !cache_.missing(some, static_cast<std::uint32_t>(tokens.size()), part.statistics).empty();
  };
  if (lacks(of_computing)) return run.computed_from <= part.first;
  if (lacks(needs)) SHALE_TRY(repeat(run.sequence, part));
  return true;
}

// Asks the model to repeat what is stored of the part, whose exact pages `computed` holds.
Status Storing::repeat(const Sequence& computed, NewRun& part) const {
  const std::uint32_t first = cache_.whole_blocks(part.first), end = cache_.whole_blocks(part.tokens.size());
  const auto tokens = std::span<const Token>(part.tokens).first(end).subspan(first);
  Sequence context = computed.fork();
  context.truncate(end);
  SHALE_ASSIGN(AttentionStatistics repeated, observe_repetition(model_, tokenizer_, context, tokens, chunk_tokens_));
  part.statistics.merge(std::move(repeated));
  return {};
}

Status Storing::compress(RequestState& run, std::size_t span) {
  NewRun part = new_run(run, span);
  if (part.first == part.tokens.size()) return {};  // it has no whole block
  SHALE_ASSIGN(const bool observed, observe(run, part));
  if (!observed) {
    run.begin_again();
    return {};
  }
  part.method = run.request.policy.method;
  part.keep = run.request.policy.keep;
  insert_prefix(run, std::span(run.prompt).first(run.sequence.length()));
  SHALE_ASSIGN(run.compression, SpanCompression::start(cache_, std::move(part), run.sequence));
  return {};
}

void Storing::compressed(RequestState& run) {
  const std::unique_ptr<SpanCompression> done = std::move(run.compression);
  store(run, std::move(done->run()));
  run.sequence = std::move(done->result());
  run.response.lossy = true;
}

void Storing::prompt_done(RequestState& run) {
  if (run.sequence.lossy()) return;
  insert_prefix(run, run.prompt);
  for (std::size_t span = 0; span < run.request.spans.size(); ++span) {
    const bool computed_here = run.computed_from < run.span_end[span];
    if (run.request.spans[span].store && computed_here) store(run, new_run(run, span));
  }
}

void Storing::answer_done(RequestState& run) {
  const bool exact = !run.sequence.lossy() && !run.sequence.ragged();
  if (!exact || run.sequence.length() == 0 || run.prefilling()) return;
  // The last token drawn was never computed: the sequence ends before it.
  std::vector<Token> tokens = run.prompt;
  tokens.insert(tokens.end(), run.drawn.begin(), run.drawn.end());
  tokens.resize(run.sequence.length());
  insert_prefix(run, tokens);
  if (!run.request.store_answer || run.drawn.empty()) return;
  // The last span, grown by the answer.
  NewRun turn = new_run(run, run.request.spans.size() - 1);
  turn.tokens = std::move(tokens);
  turn.statistics = {};
  turn.recompute_s = 0;
  store(run, std::move(turn));
}

}  // namespace shale
