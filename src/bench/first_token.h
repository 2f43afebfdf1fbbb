// Time to the first token of a short question over a long cached context: from the pool, from each tier, computed anew,
// and from llama-server, all taking turns in one run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/output.h"
#include "runtime/serving.h"

namespace shale {

struct FirstTokenOptions {
  std::uint32_t context_tokens = 4096;
  std::uint32_t question_tokens = 24;
  std::uint32_t rounds = 5;
  std::filesystem::path peer;     // folder with llama-server; empty: none
  std::filesystem::path scratch;  // where the disk tier and the peer's slots lie meanwhile
};

struct FirstTokenRow {
  std::string from;         // "computed", "pool", "memory", "disk"
  double seconds = 0;       // the median over rounds
  std::string peer_from;    // what the peer does in its place: "computed", "same slot", "restored slot"
  double peer_seconds = 0;  // with flash attention on or off, whichever is sooner; 0: no peer
};

// The disk tier is read by direct I/O; the peer's slot file lies in the page cache. kInternal when an answer did not
// come from where it was meant to come from.
Result<std::vector<FirstTokenRow>> measure_first_tokens(Model& model, const Tokenizer& tokenizer,
                                                        const std::filesystem::path& model_file,
                                                        const FirstTokenOptions& options, const OutputOptions& output);

}  // namespace shale
