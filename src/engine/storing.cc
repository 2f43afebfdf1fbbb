#include "engine/storing.h"

#include <algorithm>
#include <utility>

#include "engine/spans/repetition.h"

namespace shale {

ContextKind kind_of(const Tokenizer& tokenizer, std::span<const Token> tokens) {
  constexpr std::size_t kSample = 384;
  const std::size_t sample = std::min(kSample, tokens.size());
  return kind_of(tokenizer.text(tokens.subspan((tokens.size() - sample) / 2, sample)));
}

Storing::Storing(const Model& model, const Tokenizer& tokenizer, Cache& cache)
    : model_(model),
      tokenizer_(tokenizer),
      cache_(cache),
      windows_(std::ranges::any_of(model.info().windows, [](std::uint32_t window) { return window > 0; })) {}

NewRun Storing::new_run(RequestState& run, std::size_t span) const {
  NewRun part;
  part.first = run.span_begin(span);
  if (behind_lossy(run)) {
    part.lossy_from = run.lossy_from;
    part.inherited = expected_quality(run.response.sources);
    part.first = std::max(part.first, run.computed_from);
  }
  part.reproducible = run.reproducible;
  part.salt = run.request.policy.salt;
  part.tokens.assign(run.prompt.begin(), run.prompt.begin() + run.span_end[span]);
  part.statistics = std::move(run.span_statistics[span]);
  const RequestState::Timed& timed = run.span_timed[span];
  if (part.first + timed.tokens == run.span_end[span]) part.recompute_s = timed.seconds;  // all of it was computed
  part.label = run.request.spans[span].label;
  part.kind = kind_of(tokenizer_, std::span<const Token>(part.tokens).subspan(part.first));
  return part;
}

// Whether it is computed behind forms that the planner chose, which serve whoever accepts as much. What a budget or a
// named method dropped is that request's own.
bool Storing::behind_lossy(const RequestState& run) const {
  const bool chosen = run.lossy_from != kAllTokens && !run.budget && !run.request.policy.named();
  return chosen && run.sequence.lossy() && !run.sequence.ragged() && !windows_;
}

// A layer with a window has, of what came from tiers, only what the window shows to those who come after it.
bool Storing::has_hidden_tokens(const RequestState& run) const { return windows_ && run.from_tiers; }

// Behind lossy forms what is stored stays in the pool, too; what is merely asked is not asked again by many.
void Storing::store(RequestState& run, NewRun part) {
  if (behind_lossy(run) && run.request.insert_prefix) {
    cache_.insert_behind_lossy(part.tokens, run.sequence, run.response.sources, run.lossy_from, part.salt);
  }
  if (has_hidden_tokens(run) && part.first < run.computed_from) {
    part.first = run.computed_from;
    part.statistics = {};
  }
  const bool whole = !run.sequence.lossy() && !run.sequence.ragged() &&
                     cache_.whole_blocks(part.tokens.size()) > cache_.whole_blocks(part.first);
  if (cache_.stores_by_repetition() && part.statistics.repeat_attention.empty() && whole) {
    if (auto repetition = repeat(run.sequence, part)) {
      repetitions_.push_back(*std::move(repetition));
      return;
    }
  }
  cache_.store(std::move(part), run.sequence);  // what cannot be ranked is not stored, and counted there
}

void Storing::store_repeated() {
  const std::unique_ptr<SpanRepetition> first = std::move(repetitions_.front());
  repetitions_.pop_front();
  cache_.store(first->take(), first->exact());
}

bool Storing::give_up_repeating() {
  if (repetitions_.empty()) return false;
  const std::unique_ptr<SpanRepetition> last = std::move(repetitions_.back());
  repetitions_.pop_back();
  cache_.store(last->take(), last->exact());
  return true;
}

std::vector<PoolBlockId> Storing::blocks_repeated() const {
  std::vector<PoolBlockId> blocks;
  for (const auto& repetition : repetitions_) {
    for (const Sequence* held : {&repetition->exact(), repetition->turn()}) {
      if (!held) continue;
      const std::vector<PoolBlockId> those = held->blocks(held->length());
      blocks.insert(blocks.end(), those.begin(), those.end());
    }
  }
  return blocks;
}

void Storing::insert_prefix(RequestState& run, std::span<const Token> tokens, std::string_view salt) {
  if (run.request.insert_prefix && !has_hidden_tokens(run))
    cache_.insert_prefix(tokens, run.sequence, run.reproducible, salt);
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

bool Storing::lacks(const NewRun& part, const ScorerNeeds& needs) const {
  return !cache_.missing(needs, static_cast<std::uint32_t>(part.tokens.size()) - part.first, part.statistics).empty();
}

// What is stored of the part, whose exact pages `exact` holds.
Result<std::unique_ptr<SpanRepetition>> Storing::repeat(const Sequence& exact, NewRun part) const {
  const std::uint32_t first = cache_.whole_blocks(part.first), end = cache_.whole_blocks(part.tokens.size());
  return SpanRepetition::start(model_, tokenizer_, std::move(part), exact, first, end);
}

// What the method reads is what was seen while the span was computed, and what the model can be asked for now.
Status Storing::compress(RequestState& run, std::size_t span) {
  NewRun part = new_run(run, span);
  if (part.first == part.tokens.size()) return {};  // it has no whole block
  SHALE_ASSIGN(const ScorerNeeds needs, cache_.needs(*run.request.policy.method));
  ScorerNeeds of_computing = needs;
  of_computing.repeat_attention = false;
  const bool computed = !lacks(part, of_computing);
  if (!computed && run.computed_from > part.first) {
    run.begin_again();
    return {};
  }
  part.method = run.request.policy.method;
  part.keep = run.request.policy.keep;
  insert_prefix(run, std::span(run.prompt).first(run.sequence.length()), run.request.policy.salt);
  if (!computed || !lacks(part, needs)) return begin_compression(run, std::move(part));
  SHALE_ASSIGN(run.repetition, repeat(run.sequence, std::move(part)));
  return {};
}

Status Storing::compress_repeated(RequestState& run) {
  return begin_compression(run, std::exchange(run.repetition, nullptr)->take());
}

Status Storing::begin_compression(RequestState& run, NewRun part) const {
  SHALE_ASSIGN(run.compression, SpanCompression::start(cache_, std::move(part), run.sequence));
  return {};
}

void Storing::compressed(RequestState& run) {
  const std::unique_ptr<SpanCompression> done = std::move(run.compression);
  if (run.request.insert_prefix) cache_.keep_form(done->run(), done->result());
  store(run, std::move(done->run()));
  run.sequence = std::move(done->result());
  run.response.lossy = true;
}

// Lossy pages are the cache's since they came. What is cut or compressed for one request is inserted where that is
// done.
void Storing::loaded(RequestState& run) {
  const std::uint32_t tokens = run.retrieval.tokens_loaded();
  if (tokens == 0 || run.sequence.lossy() || run.budget || run.request.policy.named()) return;
  insert_prefix(run, std::span(run.prompt).first(tokens), run.retrieval.salt());
}

void Storing::prompt_done(RequestState& run) {
  if (run.sequence.lossy() && !behind_lossy(run)) return;
  if (!run.sequence.lossy()) insert_prefix(run, run.prompt, run.request.policy.salt);
  for (std::size_t span = 0; span < run.request.spans.size(); ++span) {
    const bool computed_here = run.computed_from < run.span_end[span];
    if (run.request.spans[span].store && computed_here) store(run, new_run(run, span));
  }
}

void Storing::answer_done(RequestState& run) {
  const bool exact = !run.sequence.lossy() && !run.sequence.ragged();
  if ((!exact && !behind_lossy(run)) || run.sequence.length() == 0 || run.prefilling()) return;
  // The last token drawn was never computed: the sequence ends before it.
  std::vector<Token> tokens = run.prompt;
  tokens.insert(tokens.end(), run.drawn.begin(), run.drawn.end());
  tokens.resize(run.sequence.length());
  if (exact) insert_prefix(run, tokens, run.request.policy.salt);
  if (!run.request.store_answer || run.drawn.empty()) return;
  // The last span, grown by the answer.
  NewRun turn = new_run(run, run.request.spans.size() - 1);
  turn.tokens = std::move(tokens);
  turn.statistics = {};
  turn.recompute_s = 0;
  store(run, std::move(turn));
}

}  // namespace shale
