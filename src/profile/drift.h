// Whether a context's profile still holds for what is asked about it now. Questions are logged with the entry, the
// newest Catalogue::kQuestionsMax of them; a check asks the newest of a few configurations, and where their answers
// fall too far below the profile the context is profiled again on these questions.
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

// Remembers that a question was asked about a stored context. What cannot be remembered is forgotten; questions of more
// than kLoggedBytesMax bytes are no questions and are left out.
inline constexpr std::size_t kLoggedBytesMax = 2000;
void log_question(Cache& cache, std::span<const Token> context, std::string_view question);

struct DriftOptions {
  double threshold = 0.1;            // of agreement, below the profile
  std::uint32_t configurations = 4;  // checked, spread over those that were profiled
  std::uint32_t questions_max = 4;   // the newest that users asked
  std::uint32_t answer_tokens = 24;  // of each reference answer
  Stop stop = {};
};

struct DriftCheck {
  // That were asked, the newest first; empty where only their tokens are known.
  std::vector<std::string> questions = {};
  std::uint32_t configurations = 0;
  double profiled = 0, observed = 0;  // mean agreement of these configurations
  bool drifted = false;
  double seconds = 0;  // what the check itself took
};

// kNotFound where the context was never profiled, or no user asked anything about it. Records nothing. Owns the engine
// meanwhile.
Result<DriftCheck> check_drift(Engine& engine, std::string_view context, const DriftOptions& options);
// The same of what was tokenised already, on all its questions.
Result<DriftCheck> check_drift(Engine& engine, const AskedContext& context, const DriftOptions& options);

}  // namespace shale
