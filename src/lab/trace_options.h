// Request traces as commands read them.
#pragma once

#include <string>

#include "cli/command_line.h"
#include "report/output.h"
#include "trace/trace_reader.h"

namespace shale {

struct TraceChoice {
  std::uint32_t block_tokens = 0;
  std::string timestamps = "auto";  // or "s", "ms"
  bool sort = false;
  double session_rate = 0;  // 0: all sessions start together
  std::string session_arrivals;
  std::uint64_t session_seed = 1;
  std::string share_prefixes = "none";  // or "same-size", "all"
  std::string model;                    // whose tokenizer cuts text; empty: text is refused
};

// All of them, in the group "Trace".
void add_trace_options(Command command, TraceChoice& choice);
// --model alone, for commands that only need a tokenizer.
void add_tokenizer_option(Command command, std::string& model);

// Loads the model's tokenizer, if one is named.
Result<TraceOptions> to_options(const TraceChoice& choice);
Result<Tokenize> tokenizer_of(const std::string& model);

struct NamedTrace {
  Trace trace;
  std::string format;
};

// Loads a trace with a progress bar; kCancelled after Ctrl-C.
Result<NamedTrace> load_trace_watched(const std::string& path, const TraceOptions& options,
                                      const OutputOptions& output);

}  // namespace shale
