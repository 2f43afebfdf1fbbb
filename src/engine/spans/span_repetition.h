// A span that the model repeats step by step, before a method that ranks by what that shows is applied to it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "cache/cache.h"
#include "engine/spans/repetition.h"
#include "model/model.h"

namespace shale {

// Holds the exact pages of the span's whole blocks, and of what lies before. Stays where it is. Not thread-safe.
class SpanRepetition {
 public:
  // `exact` holds the part's whole blocks, [first, end). The tokenizer must outlive it. Errors as of Repetition::begin,
  // and kInvalidArgument where there is no whole block.
  static Result<std::unique_ptr<SpanRepetition>> start(const Model& model, const Tokenizer& tokenizer, NewRun part,
                                                       const Sequence& exact, std::uint32_t first, std::uint32_t end);

  // Computes so many tokens of it, at least one, or to the end of a turn. kFull where the pool has no room for them.
  Status step(Model& model, std::uint32_t tokens);
  bool over() const { return rest_.empty(); }
  // Tokens left of the turn, and before them.
  std::uint32_t left() const { return static_cast<std::uint32_t>(rest_.size()); }
  std::uint32_t depth() { return repetition_->sequence().length(); }

  // The part with what was seen, once it is over; and its pages.
  NewRun take();
  const Sequence& exact() const { return exact_; }
  // What its turn is computed on; null once it is over.
  const Sequence* turn() const { return over() ? nullptr : &repetition_->sequence(); }

 private:
  SpanRepetition(NewRun part, Sequence exact) : part_(std::move(part)), exact_(std::move(exact)) {}
  void next_turn() { rest_ = repetition_->next_turn() ? repetition_->turn() : std::span<const Token>(); }

  NewRun part_;
  Sequence exact_;
  std::optional<Repetition> repetition_;
  std::span<const Token> rest_;  // of the turn
};

}  // namespace shale
