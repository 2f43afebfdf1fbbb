// One request, from the queue to its last token.
//
//   waiting ──> loading ──> prefill ──> decode ──> over      (loading: shared tiers are asked, bytes are on their way
//                  ^  \________________/   |                  for it, or for another that it shares them with)
//                  |        preempted <────┘        others have its blocks
//
// A request waits or is preempted if that list of engine/request_scheduler.h holds it; its other states follow from its
// fields.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "cache/cache.h"
#include "engine/engine.h"
#include "engine/spans/span_compression.h"
#include "engine/spans/span_repetition.h"
#include "engine/spill.h"
#include "engine/text_stream.h"
#include "model/capture.h"
#include "scheduling/fair_shares.h"

namespace shale {

class RequestState {
 public:
  RequestState(RequestId id, Request request, PagePool& pool, double submitted_s);

  // The tokens that the next forward step computes of this run: a chunk of the prompt, or the last token drawn.
  struct Chunk {
    std::vector<Token> tokens;
    bool draws = false;  // its last token's logits give the next token of the answer
    bool rates = false;  // all tokens' logits rate those of the prompt that follow
    std::size_t logits_rows() const { return rates ? tokens.size() : draws; }
  };
  // A chunk never spans two parts (span_end), so that a part's shapes depend on nothing before it
  // (engine/chunk.h). Decoding runs have one token.
  Chunk next(std::uint32_t chunk_tokens) const;
  // Tokens whose computing took so long. What was loaded meanwhile, or came from a cache, is not among them.
  struct Timed {
    std::uint32_t tokens = 0;
    double seconds = 0;
  };

  // Whether bytes that it asked a tier for are still to come.
  bool bytes_missing() const { return !retrieval.loaded(); }
  // Whether it still asks for, waits for or loads what is cached of its prompt, or what is to be compressed of it is
  // not yet.
  bool fetching() const { return !looks_up() || compress_once_loaded || repetition || compression || bytes_missing(); }
  // Whether it waits for another's load, or for the form that another makes, and holds no blocks meanwhile.
  bool awaiting() const { return (awaits.load != 0 || awaits_form != 0) && !asking; }
  // Likewise for all that it would load.
  bool awaits_all() const { return awaiting() && !awaits.otherwise_s; }
  // Whether nothing keeps it from looking up its prefix.
  bool looks_up() const { return !asking && !awaiting(); }
  // Meanwhile nothing is computed for it, unless it is alone, or computing meets the load.
  bool loading() const { return fetching() && sequence.length() >= retrieval.compute_until(); }
  // Whether tokens are known that are to be computed before the next is drawn: of the prompt, or of an answer that was
  // preempted.
  bool prefilling() const { return sequence.length() < known(); }
  bool prefilling_prompt() const { return sequence.length() < prompt.size(); }
  // Whether the next step computes its last token drawn, for the next.
  bool decoding() const { return !over && !loading() && !prefilling(); }
  std::size_t known() const { return prompt.size() + (drawn.empty() ? 0 : drawn.size() - 1); }
  void await_nobody() {
    awaits = {};
    awaits_form = 0;
  }
  void note_awaited(std::uint32_t tokens) { awaited = awaited == 0 ? tokens : std::min(awaited, tokens); }
  // Gives up all that it holds, and is computed from its first token.
  void begin_again();
  // Positions still to come at most.
  std::uint64_t tokens_max() const { return std::uint64_t{prompt.size()} + max_tokens; }
  // Index of the part that position `p` lies in: of a span, or, for tokens after the last one's, their number.
  std::size_t span_at(std::uint32_t position) const;
  // Position of the part's first token.
  std::uint32_t span_begin(std::size_t span) const { return span == 0 ? 0 : span_end[span - 1]; }
  // Index of the first span that is stored and has a whole block, to which a method that is named is applied; their
  // number where there is none.
  std::size_t first_stored() const;

  const RequestId id;
  const Request request;
  std::vector<Token> prompt;  // all spans
  // Positions at which the parts end that are computed, stored and compressed each by itself. Whole blocks are stored:
  // a span's tokens up to its last whole block; the rest of it come first in the next. A last span that is not stored
  // ends with the prompt.
  std::vector<std::uint32_t> span_end;
  Sequence sequence;
  bool asking = false;  // shared tiers for its prefix, before anything is retrieved
  SharedLoad awaits;    // likewise another's load, before its own would begin
  // At most, where that brings only the front of what it would load: until its own load would have been there.
  double awaits_until_s = std::numeric_limits<double>::infinity();
  RequestId awaits_form = 0;   // of whom the form that both name is to come; 0: of nobody
  std::uint32_t awaited = 0;   // tokens that others were to bring, since it last looked up; of several waits the fewest
  bool shared = false;         // it has found such; counted
  double look_again_at_s = 0;  // while it has no room yet: whether it would load, or share a load
  Retrieval retrieval;
  std::optional<std::size_t> compress_once_loaded;  // the span, where its exact pages are being loaded
  std::unique_ptr<SpanRepetition> repetition;       // of a span, for the method that the request names
  std::unique_ptr<SpanCompression> compression;     // of it, by that method
  std::uint32_t retries = 0;                        // loads of which not everything came
  std::uint32_t rated_from = 0;                     // prompt tokens before have no logits (Request::prompt_logprobs)
  PromptLogprobs prompt_logprobs;                   // of those that were computed, until the prompt is
  Sampler sampler;
  TextStream stream;

  std::uint32_t max_tokens = 0;  // that the answer may have
  std::vector<Token> drawn;      // the answer; the last one is not computed yet
  Response response;
  double submitted_s;
  FairShares::Share* share = nullptr;  // its tenant's, while it waits or is running
  std::uint64_t turn = 0;              // of those running and preempted, in order (engine/request_scheduler.h)
  bool begun = false;
  bool resumed = false;  // after it was preempted
  double started_s = 0;
  double first_token_s = 0;
  double last_token_s = 0;

  std::uint32_t computed_from = 0;                   // prompt tokens before came from the cache
  bool from_tiers = false;                           // some of them from a tier
  std::uint32_t reproducible = kAllTokens;           // so many of the sequence's first tokens (model/model.h)
  std::uint32_t lossy_from = kAllTokens;             // Retrieval's
  std::vector<Timed> span_timed;                     // what of each part was computed, and how long that took
  ScorerNeeds needs;                                 // what stored spans are watched for
  std::vector<std::unique_ptr<Capture>> captures;    // of each stored span while it is computed
  std::vector<AttentionStatistics> span_statistics;  // of each that was computed to its end
  std::unique_ptr<KvBudget> budget;                  // null: none
  std::uint32_t windows_returned_at = 0;             // length when pages behind windows were last returned
  std::unique_ptr<SpilledSequence> spilled;          // while it is preempted, unless it begins again
  bool over = false;                                 // answered, refused or cancelled
};

}  // namespace shale
