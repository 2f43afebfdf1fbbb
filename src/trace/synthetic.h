// Seeded synthetic load, as a stream that is read like a file: a million requests take no more memory than a hundred,
// but for the sessions that are running at once. Equal options give equal traces on every machine.
//
// Every block is a full one, and answers are told (RawRequest::output_blocks), so that what follows can reuse them.
#pragma once

#include <cstdint>
#include <memory>

#include "trace/arrivals.h"
#include "trace/trace_reader.h"

namespace shale {

// Lengths whose logarithm is normal: most near the median, some much longer. In tokens, at least 1.
struct LengthOptions {
  double median = 0;
  double sigma = 0;
};

struct LoadOptions {
  std::uint64_t seed = 1;
  std::uint64_t requests = 1000;
  std::uint32_t block_tokens = 512;
  ArrivalOptions arrivals = {};  // of requests; sessions begin as often as their mean length asks for
};

// Questions about documents that differ in popularity: document first, then the question, which is asked once.
struct DocumentLoad {
  LoadOptions load = {};
  std::uint64_t documents = 1000;
  double zipf = 1;  // the exponent of popularity; 0: all alike
  LengthOptions document = {8000, 0.8};
  LengthOptions question = {60, 0.5};
  LengthOptions answer = {150, 0.8};
};

// Sessions: each begins with one of a few prefixes (system prompts, or an agent's tools and rules), then input and
// answer alternate, all of it kept, until it would outgrow `context_max`: then it goes on from the prefix and a
// summary.
struct SessionLoad {
  LoadOptions load = {};
  std::uint64_t prefixes = 20;
  double zipf = 1;  // the exponent of the prefixes' popularity
  LengthOptions prefix = {600, 0.8};
  LengthOptions input = {150, 1.2};
  LengthOptions answer = {250, 0.8};
  double turns_mean = 5;  // geometric, at least 1
  double pause_s = 30;    // mean time from an answer to the next input, exponential
  double answer_token_s = 0.02;
  std::uint64_t context_max = 32'000;
  std::uint64_t summary_tokens = 1000;
  double subagents_per_turn = 0;  // probability that a turn starts a session of its own, with a prefix of its own
};

// People who talk with an assistant.
inline SessionLoad chat_load() { return {}; }

// Coding agents: long tools and rules, many quick turns, much of it read from tools, and subagents.
inline SessionLoad agent_load() {
  SessionLoad load;
  load.prefixes = 8;
  load.prefix = {14'000, 0.25};
  load.input = {900, 1.3};
  load.answer = {250, 0.9};
  load.turns_mean = 40;
  load.pause_s = 5;
  load.context_max = 180'000;
  load.summary_tokens = 4000;
  load.subagents_per_turn = 0.005;
  return load;
}

// kInvalidArgument for options that make no sense.
Result<std::unique_ptr<TraceReader>> generate(const DocumentLoad& options);
Result<std::unique_ptr<TraceReader>> generate(const SessionLoad& options);

}  // namespace shale
