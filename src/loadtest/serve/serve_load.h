// What clients ask of a server under measurement: when, about which context, which question. Pure, but for reading
// files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/hash.h"
#include "model/model.h"

namespace shale {

struct LoadContext {
  std::string id;
  std::vector<Token> tokens = {};  // of its text
  std::vector<std::string> questions = {};
  std::string opening = {};  // a question that is asked before the load, and not in it; empty: none
  std::string dataset = {};
  std::vector<std::vector<std::string>> answers = {};  // accepted ones of each question; may be empty
};

// Contexts with questions, as `shale quality` reads them, the first `contexts_max` of each file (0: all), each cut to
// its first `context_tokens` (0: whole). kInvalidArgument where there are none.
Result<std::vector<LoadContext>> read_load_contexts(std::span<const std::string> files, std::size_t contexts_max,
                                                    std::uint32_t context_tokens, const Tokenizer& tokenizer);

// Of everything in them, and their order.
Hash128 hash_of(std::span<const LoadContext> contexts);

// The text of the first `tokens`, without half a character at its end.
std::string text_of(const LoadContext& context, std::uint32_t tokens, const Tokenizer& tokenizer);

// A request of a trace: when it came and how long it was.
struct TraceArrival {
  double at_s = 0;  // from the first
  std::uint32_t input_tokens = 0, output_tokens = 0;
};
// The first `requests` of a trace in any format that `open_trace` reads. kInvalidArgument where it has fewer, or where
// they all come at once: no rate could be told.
Result<std::vector<TraceArrival>> read_arrivals(const std::filesystem::path& trace, std::size_t requests);
// Requests a second.
double rate_of(std::span<const TraceArrival> arrivals);

// A question of a chat about a context. The first one has its time; a later one is asked with the chat so far, a pause
// after the answer before it has ended.
struct LoadRequest {
  static constexpr std::size_t kOpening = ~std::size_t{0};  // as `question`: the context's opening

  double at_s = 0;                 // planned, from the start of the load; of a later turn known once it is asked
  std::size_t chat = 0, turn = 1;  // the first turn is 1
  double pause_s = 0;              // before a later turn
  std::size_t context = 0;
  std::size_t question = 0;          // of the context's; from their count on, those that follow on any answer
  std::uint32_t context_tokens = 0;  // of its beginning
  std::uint32_t answer_tokens = 0;

  bool operator==(const LoadRequest&) const = default;
};
std::string_view question_of(const LoadContext& context, std::size_t question);
// A chat's questions, each but the last one followed by its answer.
std::vector<std::string> dialogue_of(const LoadContext& context, std::span<const LoadRequest> turns,
                                     const std::vector<std::string>& answers);

// Moves the first question, and what is accepted as its answer, to `opening` where there are others; else `opening` is
// one that fits any text. So what is learned before the load is tried on questions that were not asked then.
void hold_back_opening(LoadContext& context);
// Asks each context's opening once.
std::vector<LoadRequest> opening_load(std::span<const LoadContext> contexts);

struct ServeLoadOptions {
  std::size_t requests = 100;
  std::size_t turns = 1;  // of a chat; the last one has what is left
  double turn_gap_s = 5;  // mean of the pauses, which are exponential
  double zipf = 1;        // a context of popularity rank r is asked about with probability proportional to 1 / r^zipf
  std::uint32_t answer_tokens = 16;
  std::uint64_t seed = 1;
};
std::size_t chats_of(const ServeLoadOptions& options);

// Chats in the order in which they begin, each with its turns. Requests come at a rate of one a second on average, so
// that a chat begins every `turns` seconds; other rates are the same requests at other times (`at_rate`). The seed says
// which context is how popular, who asks which question, how long the pauses are, and without `trace` when chats begin
// (a Poisson process); the same on every machine. Later turns ask the context's other questions, then such as follow on
// any answer. A trace of `chats_of` requests gives the chats' times and lengths: a context is cut to the prompt's
// length where it is longer, and answers are as long as the trace's, `answer_tokens` at most.
Result<std::vector<LoadRequest>> make_load(std::span<const LoadContext> contexts, std::span<const TraceArrival> trace,
                                           const ServeLoadOptions& options);
// Pauses stay as they are.
std::vector<LoadRequest> at_rate(std::vector<LoadRequest> load, double requests_per_s);
// Of each request, whether one before it was about the same context: only then can anything have been kept of it.
std::vector<bool> repeats_of(std::span<const LoadRequest> load);

}  // namespace shale
