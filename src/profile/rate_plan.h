// How many tokens of one context to keep within a budget of bytes, spread over heads by which budget, at how many bits,
// jointly. Every (head, tier, quantizer) is coded once a budget and its distortion predicted (quantizers/distortion.h);
// bytes are those of extents at rest, as CompressedRun counts them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codec/method.h"
#include "core/executor.h"
#include "paging/sequence.h"
#include "quantizers/distortion.h"
#include "scoring/attention_statistics.h"
#include "scoring/scorer.h"

namespace shale {

// What is known of the context: whole blocks, exact.
struct RankedContext {
  const Sequence* sequence = nullptr;
  std::string scorer;              // the name of what ranked it
  std::span<const float> scores;   // [layers that are ranked][kv_heads][tokens], higher = keep
  std::span<const float> queries;  // [layers][query_heads][window][head_dim], of the last tokens
  std::uint32_t query_heads = 0, window = 0;
  std::uint32_t scorer_window = ScorerOptions().window;
  const CachegenTables* tables = nullptr;  // of the model, for quantizers that need them
  ModelTraits model;                       // layers that have a window are kept whole
};

// Quantizers by tier, those that are kept: indices into the list given, never finer than the tier before.
using Precision = std::vector<std::uint8_t>;

struct RateChoice {
  std::uint64_t bytes = 0;
  double predicted = 0, measured = 0;  // distortion, mean over all heads
};

// A quantizer over all tokens, and what the order in which tokens are coded does to it: groups that share a scale are
// neighbours in position, or neighbours in position within one tier of importance.
struct QuantizerError {
  std::string name;
  double bits = 0;                             // a stored element, scales and padding included
  HeadDistortion::Error position, importance;  // means over all heads
};

struct RatePlan {
  std::uint64_t full_bytes = 0;
  // The best that can be stored: the optimum of all (keep, bits, budget).
  Method method;
  double keep = 1;
  RateChoice object;
  // Tokens and bits chosen for each head alone, what that would be worth beyond it. No extent holds this.
  std::vector<Precision> heads;  // [layers · kv_heads]
  RateChoice per_head;
  std::vector<QuantizerError> errors;
};

// `quantizers` from finest to coarsest, without repetition; at least one of `budgets` across heads (budget.h), of which
// the first also gives `per_head` and `errors`. kInvalidArgument for unknown names, for quantizers that lack tables,
// for bytes that nothing meets, a context without queries, or one that is no whole blocks; kUnsupported for a head
// dimension that a quantizer cannot take. Takes about as long as encoding the context once a quantizer and budget, and
// needs a few copies of one head's KV a thread.
Result<RatePlan> plan_rate(const RankedContext& context, std::span<const std::string> quantizers,
                           std::span<const std::string> budgets, std::uint64_t budget_bytes, Executor& executor);

}  // namespace shale
