// Quality against bytes: one context's questions under every method, keep and number of bits.
//
// The context is computed once and compressed in memory by the store's own codec, into the bytes that a store would
// keep; what every configuration costs is questions. Answers are teacher-forced as in profile.h; those of chosen
// configurations are generated, too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codec/method.h"
#include "engine/engine.h"
#include "profile/divergence.h"
#include "profile/feed.h"
#include "profile/prompt.h"

namespace shale {

struct SweepConfiguration {
  Method method;
  // 1 for methods that rank nothing. One that is not of kKeepGrid, which no store has, stands in it for the next above;
  // above 0.75, for that.
  double keep = 1;
  bool generate = false;  // the answer itself is wanted, not only how it is predicted
};

struct SweepOptions {
  std::vector<SweepConfiguration> configurations = {};
  std::uint32_t answer_tokens = 32;      // of each answer
  std::uint32_t context_tokens_max = 0;  // longer contexts lose their middle; 0: as many as the model takes
  bool question_seen = false;            // the question stands behind the context while it is ranked
  std::uint32_t window = 64;             // queries that scorers of the last queries observe
  bool predict = false;                  // predict agreement in cheaper ways, too
  std::string label = "quality";         // where it is stored
  Stop stop = {};
};

// What was known of a configuration without asking the questions: signs of the context itself, and the agreement with
// the full cache's answers to kProbeQuestions questions that the model wrote.
inline constexpr std::uint32_t kProbeQuestions = 2, kProbeTokens = 12;
struct Predicted {
  double mass = 0, error = 0;  // context_signals.h
  double probe = 0;
};

struct SweepRow {
  SweepConfiguration configuration;
  std::size_t question = 0;
  Divergence forced;
  std::uint64_t bytes = 0;  // CompressedRun::bytes_for
  std::optional<std::string> answer;
  std::optional<Predicted> predicted;
};

struct ContextSweep {
  std::uint32_t tokens = 0;          // of the context, as asked
  std::uint32_t tokens_cut = 0;      // left out of its middle
  std::uint64_t full_bytes = 0;      // of its whole blocks' KV as computed: what is compressed
  std::vector<std::string> answers;  // the full cache's, one per question
  std::vector<SweepRow> rows;        // one a configuration and question
  // What all rows took, each with ranking the tokens and without computing the context: asking; context signals;
  // writing and asking the probe's questions.
  double measured_s = 0, signals_s = 0, probe_s = 0;
};

// kInvalidArgument for unknown methods and for scorers that lack something, a calibration for instance. kFull when the
// pool cannot hold the context beside one compressed copy and the questions. Configurations that share a scorer should
// stand together: its scores are kept until the next. Owns the engine meanwhile.
Result<ContextSweep> sweep_context(Engine& engine, std::string_view context, std::span<const std::string> questions,
                                   const SweepOptions& options,
                                   const std::function<void(std::size_t, std::size_t)>& progress = {});
// The same of what was tokenised already; `predict` needs its text.
Result<ContextSweep> sweep_context(Engine& engine, const AskedContext& context, const SweepOptions& options,
                                   const std::function<void(std::size_t, std::size_t)>& progress = {});

}  // namespace shale
