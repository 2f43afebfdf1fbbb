// Stores what requests leave for later ones: prompts and answers in the pool's prefix cache, spans in the tiers, and
// a span compressed by the method that a request names.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cache/cache.h"
#include "engine/request_state.h"
#include "model/model.h"

namespace shale {

// The kind of text that these tokens are, judged by some from their middle.
ContextKind kind_of(const Tokenizer& tokenizer, std::span<const Token> tokens);

// Not thread-safe. Its constructor's arguments outlive it.
class Storing {
 public:
  Storing(const Model& model, const Tokenizer& tokenizer, Cache& cache);

  // Watches the span at the end of the run's sequence while it is computed, where it is to be stored: null where it
  // is not, and behind lossy pages, where nothing is watched.
  Capture* capture_for(RequestState& run) const;
  // The span's exact pages are in place, all of them: what was seen while computing it is kept, and a method that the
  // request names is applied. On an error the run cannot go on.
  Status span_computed(RequestState& run, std::size_t span);
  // Begins to apply the method that the request names to a span that is exact so far; what follows attends to the
  // result. Where its scorer lacks what only computing it shows, the run begins again with nothing.
  Status compress(RequestState& run, std::size_t span);
  // Goes on with that once the run's repetition is over.
  Status compress_repeated(RequestState& run);
  // Ends it: the result takes the place of the exact pages. Both are stored, and in the pool others may share both.
  void compressed(RequestState& run);
  // Called once nobody waits for a first token: shares the prompt's blocks and queues its spans for storing.
  void prompt_done(RequestState& run);
  // What tiers brought is there, and what lies before it: others may share it from now on.
  void loaded(RequestState& run);
  // The whole sequence of a run that ends well.
  void answer_done(RequestState& run);

  // What is repeated before it is stored, and the first of that; null where there is none.
  const std::deque<std::unique_ptr<SpanRepetition>>& repetitions() const { return repetitions_; }
  SpanRepetition* repetition() const { return repetitions_.empty() ? nullptr : repetitions_.front().get(); }
  // Stores that, if it is over; what is not cannot be ranked, and is counted there.
  void store_repeated();
  // Gives up the last for its pages; false where there is none.
  bool give_up_repeating();
  // The blocks of all, each as often as it is held.
  std::vector<PoolBlockId> blocks_repeated() const;

 private:
  NewRun new_run(RequestState& run, std::size_t span) const;
  Result<std::unique_ptr<SpanRepetition>> repeat(const Sequence& exact, NewRun part) const;
  void store(RequestState& run, NewRun part);
  void insert_prefix(RequestState& run, std::span<const Token> tokens, std::string_view salt);
  bool has_hidden_tokens(const RequestState& run) const;
  bool behind_lossy(const RequestState& run) const;
  bool lacks(const NewRun& part, const ScorerNeeds& needs) const;
  Status begin_compression(RequestState& run, NewRun part) const;

  const Model& model_;
  const Tokenizer& tokenizer_;
  Cache& cache_;
  bool windows_;  // of some layer
  std::deque<std::unique_ptr<SpanRepetition>> repetitions_;
};

}  // namespace shale
