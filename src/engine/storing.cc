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

NewRun Storing::new_run(Run& run, std::size_t segment) const {
  NewRun part;
  part.first = run.segment_begin(segment);
  part.reproducible = run.reproducible;
  part.salt = run.request.demand.salt;
  part.tokens.assign(run.prompt.begin(), run.prompt.begin() + run.segment_end[segment]);
  part.observations = std::move(run.segment_observations[segment]);
  if (run.computed_from <= part.first) part.recompute_s = run.segment_seconds[segment];
  part.label = run.request.segments[segment].label;
  part.kind = kind_of(tokenizer_, std::span<const Token>(part.tokens).subspan(part.first));
  return part;
}

// Of what came from tiers, a layer with a window has only what the window shows to those who come after it.
bool Storing::has_hidden_tokens(const Run& run) const { return windows_ && run.from_tiers; }

void Storing::store(Run& run, NewRun part) {
  if (has_hidden_tokens(run) && part.first < run.computed_from) {
    part.first = run.computed_from;
    part.observations = {};
  }
  const bool whole = !run.sequence.lossy() && !run.sequence.parted() && cache_.whole_blocks(part.tokens.size()) > 0;
  if (cache_.stores_by_repetition() && part.observations.repeat_attention.empty() && whole) {
    const std::uint32_t more = repetition_tokens_max(static_cast<std::uint32_t>(part.tokens.size()) - part.first);
    static_cast<void>(cache_.make_room(cache_.pool().shape().pages_for(more) + 1));
    static_cast<void>(repeat(run.sequence, part));  // what cannot be ranked is not stored, and counted there
  }
  cache_.store(std::move(part), run.sequence);
}

void Storing::remember(Run& run, std::span<const Token> tokens) {
  if (run.request.remember && !has_hidden_tokens(run))
    cache_.remember(tokens, run.sequence, run.reproducible, run.request.demand.salt);
}

Capture* Storing::capture_for(Run& run) const {
  const bool meets = run.retrieval.compute_until() > 0;  // what is watched is watched whole
  if (!run.prefilling_prompt() || run.sequence.lossy() || meets) return nullptr;
  const std::size_t segment = run.segment_at(run.sequence.length());
  if (segment == run.request.segments.size() || !run.request.segments[segment].store) return nullptr;
  std::unique_ptr<Capture>& capture = run.captures[segment];
  if (!capture) {
    const std::uint32_t begin = run.segment_begin(segment);
    capture = std::make_unique<Capture>(model_.info(), begin, run.segment_end[segment] - begin, run.needs);
  }
  return capture.get();
}

Status Storing::segment_computed(Run& run, std::size_t segment) {
  if (const auto capture = std::exchange(run.captures[segment], nullptr)) {
    run.segment_observations[segment] = capture->take();
  }
  const bool named = run.request.demand.named() && run.request.segments[segment].store;
  return named && !run.sequence.lossy() ? compress(run, segment) : Status();
}

// Gathers what the request's method reads of a segment whose exact pages are in place: what was seen while computing
// it, and what the model can be asked for now. False where the segment has to be computed again for the rest.
Result<bool> Storing::observe(Run& run, NewRun& part) {
  SHALE_ASSIGN(const ScorerNeeds needs, cache_.needs(*run.request.demand.method));
  ScorerNeeds of_computing = needs;
  of_computing.repeat_attention = false;
  const auto tokens = std::span<const Token>(part.tokens).subspan(part.first);
  const auto lacks = [&](const ScorerNeeds& some) {
    return !cache_.missing(some, static_cast<std::uint32_t>(tokens.size()), part.observations).empty();
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
  SHALE_ASSIGN(Observations repeated, observe_repetition(model_, tokenizer_, context, tokens, chunk_tokens_));
  part.observations.merge(std::move(repeated));
  return {};
}

Status Storing::compress(Run& run, std::size_t segment) {
  NewRun part = new_run(run, segment);
  if (part.first == part.tokens.size()) return {};  // it has no whole block
  SHALE_ASSIGN(const bool observed, observe(run, part));
  if (!observed) {
    run.begin_again();
    return {};
  }
  part.method = run.request.demand.method;
  part.keep = run.request.demand.keep;
  remember(run, std::span(run.prompt).first(run.sequence.length()));
  SHALE_ASSIGN(run.compression, SegmentCompression::start(cache_, std::move(part), run.sequence));
  return {};
}

void Storing::compressed(Run& run) {
  const std::unique_ptr<SegmentCompression> done = std::move(run.compression);
  store(run, std::move(done->run()));
  run.sequence = std::move(done->result());
  run.response.lossy = true;
}

void Storing::prompt_done(Run& run) {
  if (run.sequence.lossy()) return;
  remember(run, run.prompt);
  for (std::size_t segment = 0; segment < run.request.segments.size(); ++segment) {
    const bool computed_here = run.computed_from < run.segment_end[segment];
    if (run.request.segments[segment].store && computed_here) store(run, new_run(run, segment));
  }
}

void Storing::answer_done(Run& run) {
  const bool exact = !run.sequence.lossy() && !run.sequence.parted();
  if (!exact || run.sequence.length() == 0 || run.prefilling()) return;
  // The last token drawn was never computed: the sequence ends before it.
  std::vector<Token> tokens = run.prompt;
  tokens.insert(tokens.end(), run.drawn.begin(), run.drawn.end());
  tokens.resize(run.sequence.length());
  remember(run, tokens);
  if (!run.request.store_answer || run.drawn.empty()) return;
  // The last segment, grown by the answer.
  NewRun turn = new_run(run, run.request.segments.size() - 1);
  turn.tokens = std::move(tokens);
  turn.observations = {};
  turn.recompute_s = 0;
  store(run, std::move(turn));
}

}  // namespace shale
