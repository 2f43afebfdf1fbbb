#include "profile/exact_context.h"

#include <thread>
#include <utility>

#include "engine/chunk.h"
#include "engine/spans/repetition.h"
#include "engine/storing.h"
#include "model/capture.h"

namespace shale {
namespace {

// Exact blocks of a prefix of the context; none where they do not come in time.
Status fetch(Engine& engine, std::span<const Token> context, Sequence& sequence, const Stop& stop) {
  using namespace std::chrono_literals;
  Cache& cache = engine.cache();
  Retrieval retrieval = cache.retrieve(context, {.exact = true, .method = {}, .counts = false}, sequence);
  while (!retrieval.loaded()) {
    SHALE_TRY(check_stop(stop));
    const auto worked = retrieval.poll(engine.model().executor(), 0);
    if (!worked) {
      retrieval = cache.keep_what_came(std::move(retrieval), sequence);
    } else if (retrieval.late()) {
      cache.give_up(std::move(retrieval));
      sequence.clear();
      return {};
    } else if (!*worked) {
      std::this_thread::sleep_for(100us);
    }
  }
  return {};
}

// Computes what the sequence does not hold of the context. Returns how long that took; 0 at somebody's pace, whose
// steps are smaller than a request's and take longer by the token.
Result<double> compute(Engine& engine, std::span<const Token> context, Sequence& sequence, Capture* capture,
                       const Stop& stop) {
  double seconds = 0;
  for (auto rest = context.subspan(sequence.length()); !rest.empty();) {
    const std::uint32_t depth = sequence.length();
    SHALE_TRY(check_stop(stop, depth));
    const auto chunk = rest.first(next_chunk(static_cast<std::uint32_t>(rest.size()), step_tokens(stop)));
    const auto count = static_cast<std::uint32_t>(chunk.size());
    if (!sequence.append(count)) {
      static_cast<void>(engine.cache().evict_until_free(engine.cache().pool().shape().pages_for(count) + 1));
      SHALE_TRY(sequence.append(count));
    }
    const StepSequence step{.sequence = &sequence, .tokens = chunk, .logits_none = true, .capture = capture};
    const OwnTime time(stop);
    const auto stepped = step_at_pace(engine.model(), {&step, 1}, stop);
    if (!stepped && stepped.error().code == ErrorCode::kBusy) {  // for requests: again, cut anew
      sequence.truncate(depth);
      continue;
    }
    if (!stepped) return std::unexpected(stepped.error());
    const double step_s = time.seconds();
    if (!stop.pace()) engine.cache().note_prefill(count, depth, step_s);
    seconds += step_s;
    rest = rest.subspan(count);
  }
  return stop.pace() ? 0 : seconds;
}

}  // namespace

Result<ScorerNeeds> needs_of(const Cache& cache, std::span<const Method> methods) {
  ScorerNeeds needs;
  for (const Method& method : methods) {
    SHALE_ASSIGN(const ScorerNeeds one, cache.needs(method));
    needs = needs | one;
  }
  return needs;
}

Result<ExactContext> exact_context(Engine& engine, std::span<const Token> context, const ScorerNeeds& needs,
                                   const ExactContextOptions& options, const Stop& stop) {
  Model& model = engine.model();
  Cache& cache = engine.cache();
  const auto tokens = static_cast<std::uint32_t>(context.size());
  ExactContext exact{Sequence(cache.pool()), {}};
  exact.run.tokens.assign(context.begin(), context.end());
  exact.run.label = options.label;
  exact.run.kind = kind_of(engine.tokenizer(), context);
  AttentionStatistics& statistics = exact.run.statistics;
  ScorerNeeds of_computing = needs;
  of_computing.repeat_attention = false;
  const bool watch = !cache.missing(of_computing, tokens, statistics).empty();
  if (!watch) SHALE_TRY(fetch(engine, context, exact.sequence, stop));
  const bool whole = exact.sequence.length() == 0;
  Capture capture(model.info(), 0, tokens, watch ? of_computing : ScorerNeeds{});
  SHALE_ASSIGN(const double seconds, compute(engine, context, exact.sequence, watch ? &capture : nullptr, stop));
  if (whole) exact.run.recompute_s = seconds;
  statistics = capture.take();
  if (needs.repeat_attention) {
    SHALE_ASSIGN(Repetition repetition, Repetition::begin(model, engine.tokenizer(), exact.sequence, context));
    while (repetition.next_turn()) {
      const Feed turn{&repetition.sequence(), repetition.turn(), &repetition.capture()};
      SHALE_TRY(feed(model, {&turn, 1}, {}, stop));
    }
    statistics.merge(repetition.take());
  }
  if (const std::string missing = cache.missing(needs, tokens, statistics); !missing.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the context cannot be ranked without {}", missing);
  }
  if (options.store && cache.whole_blocks(tokens) == tokens) cache.store(exact.run, exact.sequence);
  return exact;
}

}  // namespace shale
