// What the choices of an answer used together, as its client and the log are told.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace shale {

// Sums, but where it says otherwise.
struct AnswerUsage {
  std::size_t choices = 0;
  // Each prompt once, as of the one of its choices that computed most of it: the others found that in the pool.
  std::size_t prompt_tokens = 0, computed_tokens = 0;
  CachedTokens cached = {};
  std::size_t completion_tokens = 0;           // with those that ended a choice
  bool lossy = false;                          // at least one choice
  std::optional<double> expected_quality = 1;  // of the worst choice; nothing where that of one is not known
  std::string_view metric = kAgreement;
  std::vector<SourceUsed> compressed = {};     // lossy forms that served, choice by choice
  double queue_seconds = 0, ttft_seconds = 0;  // of the choice that began, and of that which had a token, first
  double tpot_seconds = 0;                     // mean of all choices' later tokens
  double longest_gap_seconds = 0;              // between two tokens of a choice
};

// Of responses in the order of their prompts, `of_prompt` of each. At least one.
AnswerUsage usage_of(std::span<const Response* const> responses, std::size_t of_prompt = 1);

}  // namespace shale
