// Requests to tokens: queue, batch, chunked prefill, decode.
//
// One thread owns the engine and calls `run_once` in a loop; all computing runs on the model's threads. No turn of the
// loop waits for a tier: reads arrive and writes go on while other requests compute. Encoding and placing get a bounded
// share of every step and all idle time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "core/clock.h"
#include "engine/kv_budget.h"
#include "model/logprobs.h"
#include "model/model.h"
#include "scheduling/schedulers.h"

namespace shale {

using RequestId = std::uint64_t;

// A chunk of the prompt that is stored as one run: its whole blocks, its last tokens being part of what follows it.
// Prefill never lets a chunk span two spans, cut so, so that a request computes the same shapes whether or not
// earlier spans came from a tier.
struct PrefixSpan {
  std::vector<Token> tokens;
  bool store = false;
  std::string label;
};

struct DrawnToken {
  Token token = 0;
  std::optional<Logprobs> logprobs = {};  // where the request asks for them
};

struct Request {
  std::vector<PrefixSpan> spans;  // at least one token in the last
  SamplingOptions sampling;
  std::optional<std::uint32_t> max_tokens = 128;  // none: as many as the model's context and the pool hold
  std::vector<std::string> stop;                  // text that ends the answer and is not part of it
  std::vector<Token> stop_tokens = {};            // likewise tokens, also where `ignore_end` is set
  bool include_stop = false;                      // what of these ends the answer is its last part
  RequestPolicy policy;
  bool use_cache = true;      // false: compute everything, look at nothing (still stored when spans say so)
  bool store_answer = false;  // the last span and the answer are stored as a run too (a chat turn)
  // Stays inside so many tokens a head; the answer is lossy once a token was dropped. Not with a method in `policy`.
  std::optional<KvBudgetOptions> budget;
  bool insert_prefix = true;  // its pages may serve later requests
  std::string tenant = {};    // whose turn it is goes by what its tenant was served (scheduling/fair_shares.h)
  double tenant_weight = 1;   // above 0
  int priority = 0;           // within its tenant: higher goes first, and is preempted last
  bool ignore_end = false;    // the answer goes on past end-of-turn tokens, to max_tokens
  std::optional<std::uint32_t> logprobs = {};  // `on_token` is told them, with so many of the likeliest tokens
  // Likewise `on_prompt`, those of the prompt. All of it is computed for that, and nothing looked up, unless the policy
  // names a method: then there are those that are computed over what the method left of its span (behind the first
  // token after the span), whether that was cached or not.
  std::optional<std::uint32_t> prompt_logprobs = {};
  bool prompt_only = false;  // nothing is drawn; `max_tokens` is 0 then
  // Called once, when the prompt has been computed, before its first token is drawn.
  std::function<void(PromptLogprobs)> on_prompt = {};
  // Called with each token that is drawn, the one that ends the answer included, before its text goes out.
  std::function<void(DrawnToken)> on_token = {};
  // Called with each piece of text as soon as no stop string can begin in it.
  std::function<void(std::string_view piece)> on_text;
};

enum class StopReason { kEndOfTurn, kStopString, kStopToken, kLength, kContextFull, kCancelled, kError };
std::string_view to_string(StopReason reason);

struct Response {
  RequestId id = 0;
  std::string text;
  std::vector<Token> tokens;       // generated, less `end_token`
  std::optional<Token> end_token;  // that ended the answer and is not part of it: of its turn, or a stop token
  std::size_t drawn() const { return tokens.size() + end_token.has_value(); }
  std::uint32_t prompt_tokens = 0;
  CachedTokens cached;  // of the prompt
  std::uint32_t computed_tokens() const {
    return begun ? prompt_tokens - static_cast<std::uint32_t>(cached.total()) : 0;
  }
  bool unspoken = false;            // some of its tokens have no text, such as control tokens
  bool lossy = false;               // computed over keys and values that lost something: always of an int8 pool
  std::vector<SourceUsed> sources;  // per run: tier, method, keep, bytes
  // The expected quality of the answer beside one over exact KV, in the cache's metric: the least of its sources.
  // Nothing if it is not known.
  std::optional<double> expected_quality() const;
  std::string_view metric = kAgreement;
  KvBudgetStats budget;  // what staying inside its KV budget took
  StopReason stop = StopReason::kLength;
  bool begun = true;                // false: it ended while it waited, and nothing of its prompt was looked up
  double queue_seconds = 0;         // from submission to where it began, or ended
  double ttft_seconds = 0;          // from submission to the first token
  double tpot_seconds = 0;          // mean time between later tokens; 0 with fewer than two
  std::vector<float> gaps_seconds;  // each of those times
  std::optional<Error> error;
};

struct EngineOptions {
  std::uint32_t sequences_max = 16;  // decoded together
  std::uint32_t waiting_max = 1024;  // submitted and not begun; more are refused
  // Chooses which of a tenant's waiting requests of the highest priority begins next: one of scheduler_names(). `reuse`
  // looks up blocks of the pool; looking touches nothing.
  std::string scheduler = "fifo";
  SchedulerOptions scheduling = {};
  std::uint32_t chunk_tokens = 512;  // tokens a step, of a prompt and of those who decode
  // While others decode, a step with chunks of prompts, and what is loaded and stored before it, takes about
  // `chunk_slowdown` times as long as a step without, or `chunk_step_s`, whichever is longer: so a long prompt does not
  // hold up the answers of others for longer, and does not wait behind them for long in chunks that are too small to be
  // computed well. A slowdown of 0: chunks are always whole. `chunk_step_s` also bounds repetitions (KVzip) between
  // their steps.
  double chunk_slowdown = 1.7;
  double chunk_step_s = 0.05;
  // Steps while nobody is running, for guests or to store, take about `idle_step_s` at most, or are of 8 tokens.
  // Whoever comes waits for the end of one; of a guest's that nothing watches, for that of a layer or the head, or for
  // `idle_slice_s` where that is longer.
  double idle_step_s = 0.02, idle_slice_s = 0.002;
  // false: requests neither look up nor leave anything, in the pool or on tiers; for measuring what reuse is worth. A
  // method in a request's policy is refused then.
  bool prefix_cache = true;
  std::uint32_t query_window = 64;  // captured for scorers that read queries
  // Encoding, writing and placing get this share of the time that steps may take while others decode, while there is
  // any to do; less while somebody waits for a first token, more where what waits for it holds much of the pool
  // (background_share.h). Guests get what is left of it.
  double background_share = 0.1;
};

// Sequences of somebody who measures (profile/spare_time.h), whose tokens are computed in spare places of steps. All
// are of prompts' role.
struct GuestStep {
  std::span<const StepSequence> sequences;
  bool done = false;
  bool given_up = false;           // for requests that came: it is to be cut anew, by guest_tokens()
  double seconds = 0;              // that it took of a step, or its own step, as far as that came
  std::vector<float> logits = {};  // as Model::step returns them
  std::optional<Error> error = {};
};

struct EngineStats {
  std::uint64_t steps = 0, prefill_tokens = 0, decode_tokens = 0, retried = 0;
  std::uint64_t preempted = 0, resumed = 0, computed_again = 0;  // times that requests were
  std::uint64_t shared_loads = 0;                                // requests that took another's load or form, once each
  KvBudgetStats budgets;                                         // of all requests
  double budget_seconds = 0;                                     // spent evicting and compacting
  std::uint64_t guest_tokens = 0;                                // computed for guests beside requests
  double guest_seconds = 0;                                      // that guests took of the time of requests
  double threads_short_seconds = 0;                              // Executor::seconds_short
};

// How full the pages of the running requests are.
struct Occupancy {
  std::uint64_t slots = 0, tokens = 0;  // of their pages, over all heads; what several share counts for each
  double budget = 0;                    // what heads hold of their KV budgets, mean over the requests that have one

  // Share of the slots that hold no token: holes, and room at the ends of tables.
  double fragmentation() const { return slots == 0 ? 0 : 1 - static_cast<double>(tokens) / static_cast<double>(slots); }
};

class Engine {
 public:
  Engine(const EngineOptions& options, Model& model, const Tokenizer& tokenizer, Cache& cache, const Clock& clock);
  ~Engine();

  // kInvalidArgument (empty prompt, too long for the model's context, exact of an int8 pool), kFull (can never fit the
  // pool): refused with the reason and what to do. Otherwise queued.
  Result<RequestId> submit(Request request);
  // One turn: takes in what tiers delivered, computes one step, gives background work its share. If every running
  // request waits for a tier, it pauses for a millisecond at most. False when there is nothing to do.
  bool run_once();
  // Runs until this request is done.
  Response run(Request request);
  // Also from the request's own callbacks: it ends there.
  void cancel(RequestId id);
  // Responses of finished requests, each returned once.
  std::vector<Response> finished();

  // Guests measure quality while requests are running. Their time, in steps and between them, comes from
  // `background_share`, after encoding and placing. They have none while the batch is full, a request waits to begin or
  // a prompt is being computed. They are computed in the step of the requests that decode if that changes nothing for
  // these, else in a step of their own.
  //
  // Tokens that a guest may have computed next, on top of `depth`; 0: not now. If nothing is running, as many as make a
  // step of `idle_step_s` (engine/idle_step.h).
  std::uint32_t guest_tokens(std::uint32_t depth);
  // The guest of the following turns, until it is done or given up; it stays where it is until then. Null: none.
  void invite(GuestStep* guest);
  // Reports the seconds that measuring took between steps.
  void charge_guest(double seconds);
  // Whether anything is still to be written to a tier, or to be repeated before.
  bool stores_any() const;
  // Tokens of each span that is repeated before it can be stored.
  std::vector<std::uint32_t> spans_to_repeat() const;
  // Whether requests need pages that a guest may hold.
  bool needs_guests_pages() const;

  // Requests that run; those of them that wait for a tier; requests that wait to begin; preempted requests.
  std::uint32_t running() const;
  std::uint32_t loading() const;
  std::uint32_t waiting() const;
  std::uint32_t preempted() const;

  const EngineOptions& options() const;
  Model& model();
  const Tokenizer& tokenizer() const;
  Cache& cache();
  EngineStats stats() const;
  Occupancy occupancy() const;  // looks at every page table

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shale
