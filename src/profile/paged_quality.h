// What KV budgets do to answers: the full cache and every budget generate in lockstep from one prefill.
//
// Twice: once all are fed the full cache's own greedy answer, which tells at each token how far a budget's prediction
// is from it; then each is fed its own, which tells what it would have answered.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_budget.h"
#include "profile/divergence.h"

namespace shale {

struct PagedQualityOptions {
  // A budget of 0 tokens is none, to see what `pool` alone does to answers.
  std::vector<KvBudgetOptions> budgets;
  std::uint32_t answer_tokens = 64;
  std::uint32_t span_tokens = 256;  // of the answer, for Divergence along the way
  bool ignore_end = false;          // answers go on past end-of-turn tokens
  bool own_answers = true;          // generate each budget's own answer, too
  ScorerOptions scorers;
  const Calibration* calibration = nullptr;
  // The pool where the full cache answers instead, for budgets in a pool of another element; null: the same.
  PagePool* reference = nullptr;
};

struct PagedQuality {
  Divergence forced;              // over the whole answer
  std::vector<Divergence> along;  // over each span of it
  std::vector<Token> answer;      // its own
  KvBudgetStats stats;            // of the forced answer
};

struct PagedQualities {
  std::vector<Token> answer;          // the full cache's
  std::vector<PagedQuality> budgets;  // in the order of the options
};

// Prompts of kWhole budgets are computed once for all. kInvalidArgument for budgets that KvBudget refuses and for an
// empty prompt; kFull where the pool cannot hold the prompt twice beside what the budgets keep.
Result<PagedQualities> measure_paged_quality(Model& model, const Tokenizer& tokenizer, PagePool& pool,
                                             std::span<const Token> prompt, const PagedQualityOptions& options);

}  // namespace shale
