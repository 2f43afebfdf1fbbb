// Quality of every configuration of one context, measured: the compressed cache's answers against the full cache's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace shale {

struct ProfileOptions {
  std::vector<std::string> methods;  // empty: the cache's candidate methods
  std::vector<double> keeps = {0.75, 0.5, 0.25, 0.1};
  std::uint32_t answer_tokens = 24;  // of each reference answer
  std::uint32_t questions_max = 4;
};

// Teacher-forced on the full cache's greedy answer: at each of its tokens, what the compressed cache would have said.
struct ProfileRow {
  Method method;
  double keep = 1;
  double agreement = 0;  // share of positions whose arg max is the reference's token
  double kl = 0;         // mean KL(full ‖ compressed) over positions, nats
  std::uint32_t questions = 0;
  std::uint64_t bytes = 0;  // of the stored object at this keep
};

struct ContextProfile {
  EntryKey key;
  std::vector<std::string> questions;  // that were asked
  bool generated_questions = false;    // the model wrote them
  std::vector<ProfileRow> rows;
  double seconds = 0;
};

// How a context and a question become tokens: the chat template's own text around them, the context tokenised on its
// own so that what is stored does not depend on the question.
struct PromptParts {
  std::vector<Token> context;   // template head and context
  std::vector<Token> question;  // the question, the rest of the template
};
Result<PromptParts> make_prompt(const Tokenizer& tokenizer, std::string_view context, std::string_view question,
                                std::string_view system = {});

// Measures every (method, keep) of the context on `questions`, or on questions that the model writes about different
// paragraphs when there are none; records the rows in the cache's catalogue. The context is computed or fetched exactly
// once. `progress(done, total)` counts configurations.
Result<ContextProfile> profile_context(Engine& engine, std::string_view context, std::vector<std::string> questions,
                                       const ProfileOptions& options,
                                       const std::function<void(std::size_t, std::size_t)>& progress = {});

// Questions about different paragraphs of the context, written by the model.
Result<std::vector<std::string>> write_questions(Engine& engine, std::string_view context, std::uint32_t count);

// agreement and kl of `compressed` against `full`, both [positions][vocabulary] logits, and the reference tokens.
struct Divergence {
  double agreement = 0, kl = 0;
};
Divergence divergence(std::span<const float> full, std::span<const float> compressed, std::span<const Token> reference,
                      std::size_t vocabulary);

}  // namespace shale
