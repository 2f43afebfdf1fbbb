// Whether a context's profile still holds for what is asked about it now. Where answers were given over a lossy form of
// it, their own tokens say so: each is fed to the full cache, which would have drawn it or not. (In another metric than
// agreement, the full cache's own answers are compared with them.) Else a few configurations are asked the questions
// that are logged with the cached prefix, the newest MetadataStore::kQuestionsMax of them. Where quality falls too far
// below what was expected, the context is profiled again on these questions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "profile/feed.h"
#include "profile/prompt.h"

namespace shale {

// Records that a question was asked about a stored context. What cannot be recorded is forgotten; questions of more
// than kLoggedBytesMax bytes are no questions and are left out.
inline constexpr std::size_t kLoggedBytesMax = 2000;
void log_question(Cache& cache, std::span<const Token> context, std::string_view question);

struct DriftOptions {
  double threshold = 0.1;            // of quality, below the profile
  std::uint32_t configurations = 4;  // checked, spread over those that were profiled
  std::uint32_t questions_max = 4;   // the newest that users asked
  std::uint32_t answer_tokens = 24;  // of each reference answer
  Stop stop = {};
};

// A request's answer over a lossy form of its context that the planner chose.
struct LossyAnswer {
  std::vector<Token> question;  // the prompt behind the context's whole blocks, at least one token
  std::vector<Token> answer;    // greedy, at least one token
  bool ended = false;           // by the end of its turn; else it would have gone on
  double expected = 1;          // quality, when it was given
  // Whether it says the same of the copy, whatever was expected.
  bool same_as(const LossyAnswer& other) const {
    return question == other.question && answer == other.answer && ended == other.ended;
  }
};

struct DriftCheck {
  // Questions that were asked, the newest first; empty where only their tokens are known.
  std::vector<std::string> questions = {};
  std::uint32_t configurations = 0, answers = 0;  // that were looked at, the one or the other
  double profiled = 0, observed = 0;              // their mean quality: as expected, and now
  bool drifted = false;
  double seconds = 0;  // what the check itself took
};

// kNotFound where the context was never profiled, or no user asked anything about it. Records nothing. Owns the engine
// meanwhile.
Result<DriftCheck> check_drift(Engine& engine, std::string_view context, const DriftOptions& options);
// The same of what was tokenised already, on all its questions.
Result<DriftCheck> check_drift(Engine& engine, const AskedContext& context, const DriftOptions& options);
// Checks answers about the context as they were given, at least one: the share of the first tokens of each that the
// full cache draws when fed those before; in another metric, its own answer to the same is compared with them. Exact
// blocks are fetched, or computed where there are none.
Result<DriftCheck> check_answers(Engine& engine, std::span<const Token> context, std::span<const LossyAnswer> answers,
                                 const DriftOptions& options);

}  // namespace shale
