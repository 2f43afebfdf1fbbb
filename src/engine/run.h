// One request under way.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cache/cache.h"
#include "engine/engine.h"
#include "engine/text_stream.h"

namespace shale {

class Run {
 public:
  Run(RequestId id, Request request, PagePool& pool, double submitted_s);

  // What the next forward step computes of this run: a stretch of the prompt, or the last token drawn.
  struct Stretch {
    std::vector<Token> tokens;
    bool ends_prompt = false;        // its last token's logits give the first token of the answer
    std::uint32_t query_window = 0;  // of the stretch's last tokens, to capture
  };
  // A stretch never spans two segments, and the last stretch of a segment holds at least `query_window` tokens where
  // the segment does, so that a segment's shapes depend on nothing before it. Decoding runs have one token.
  Stretch next(std::uint32_t chunk_tokens, std::uint32_t query_window) const;

  bool prefilling() const { return sequence.length() < prompt.size(); }
  // Positions still to come at most.
  std::uint64_t tokens_max() const { return std::uint64_t{prompt.size()} + request.max_tokens; }
  // Index of the segment that position `p` lies in.
  std::size_t segment_at(std::uint32_t position) const;

  const RequestId id;
  const Request request;
  std::vector<Token> prompt;               // all segments
  std::vector<std::uint32_t> segment_end;  // positions
  Sequence sequence;
  Retrieval retrieval;
  Sampler sampler;
  TextStream stream;

  std::vector<Token> drawn;  // the answer; the last one is not computed yet
  Response response;
  double submitted_s;
  double started_s = 0;
  double first_token_s = 0;
  double last_token_s = 0;

  std::uint32_t computed_from = 0;      // prompt tokens before came from the cache
  std::vector<double> segment_seconds;  // of computing each segment, 0 where none of it was
  std::vector<StoredQueries> segment_queries;
  bool over = false;  // answered, refused or cancelled
};

}  // namespace shale
