// A trace from documents with questions about them, as "A Systematic Study of KV Cache Management for Efficient LLM
// Inference" made its synthetic one: every question is asked with its document before it; all of them shuffled, in
// batches that arrive together.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "trace/trace_reader.h"

namespace shale {

struct QuestionOptions {
  std::uint64_t seed = 1;
  std::uint32_t block_tokens = 512;
  std::uint64_t batch = 32;   // requests that arrive at the same time
  double batch_gap_s = 1;     // between batches
  std::uint64_t repeats = 1;  // times that each question is asked
  // Tokenizes a document, and what is asked about it, which follows it after an empty line.
  Tokenize tokenize = {};
  TraceLimits limits = {};
};

// JSON Lines, gzip or not: `context` (text), `questions` (texts) and, for the answers' lengths and blocks, `answers`
// (for each question a text, or a list of which the first counts). All documents' tokens are in memory.
Result<std::unique_ptr<TraceReader>> ask_questions(std::span<const std::filesystem::path> files,
                                                   const QuestionOptions& options);

}  // namespace shale
