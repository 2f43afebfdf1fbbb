// Requests on one engine that computes them together, step by step, in the order of `shale serve` (engine/batch.h):
// every forward step computes a token of each request that decodes, and chunks of prompts.
//
// Requests begin in order of arrival while what they hold fits the pool, their answers included; so nobody is
// preempted. A tier reads for one request or move after another, and the engine decodes what came between two steps.
// Whoever has computed nothing yet looks again when another has its first token. While nobody is served, placement goes
// on until it is at rest. Left out are what storing takes of the engine and of tiers' writing, that a small chunk costs
// more a token than a large one, that what a lone request loads is computed layer by layer as it comes, and that few
// load at once where the pool is small. Private to the room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/lru_map.h"
#include "sim/simulated_meeting.h"
#include "sim/tiered_engine.h"

namespace shale {

// The engine's own pool: contexts that requests use, and those that are kept for later ones, evicted by LRU.
class SimulatedPool {
 public:
  // A capacity of 0: it holds all that runs, and keeps nothing. `on_evict` hears what is no longer cached.
  SimulatedPool(const Contexts& contexts, std::uint64_t token_bytes, std::uint64_t capacity_bytes,
                std::function<void(ContextId)> on_evict);

  // Those of these contexts that are cached there, from the front.
  std::vector<Served::Part> find(std::span<const ContextId> path) const;
  // A request uses cached contexts, and reserves bytes for what it computes or loads. False where that does not fit
  // beside what others use; one alone always fits.
  bool begin(std::span<const ContextId> cached, std::uint64_t reserved_bytes);
  // It uses cached contexts instead of what it reserved for them.
  void share(std::span<const ContextId> cached, std::uint64_t& reserved_bytes);
  // Contexts behind the first `cached` are cached as well, unless others were sooner, exact where it has them so, and
  // are no longer of what it reserved; it uses all. Tokens that were dropped take no room. How many of the path are
  // cached now.
  std::size_t insert(std::span<const ContextId> path, std::size_t cached, const Served& served,
                     std::uint64_t& reserved_bytes);
  void end(std::span<const ContextId> cached, std::uint64_t reserved_bytes);

  std::uint64_t bytes(ContextId id) const { return contexts_.all()[id].tokens * token_bytes_; }

 private:
  struct Held {
    bool cached = false;
    std::uint32_t users = 0;
    Served::Part part = {};
  };
  bool use(ContextId id);
  void evict();
  std::uint64_t held_bytes(ContextId id) const {
    return static_cast<std::uint64_t>(held_[id].part.keep * static_cast<double>(bytes(id)));
  }

  const Contexts& contexts_;
  const std::uint64_t token_bytes_, capacity_bytes_;
  const std::function<void(ContextId)> on_evict_;
  std::vector<Held> held_;          // by ContextId
  LruMap<ContextId, bool> unused_;  // of those that are cached
  std::uint64_t used_bytes_ = 0, unused_bytes_ = 0;
};

class BatchedEngine {
 public:
  // All outlive it; `options.batching` is there.
  BatchedEngine(const Trace& trace, const Contexts& contexts, const TieredOptions& options, TieredEngine& engine);

  // Those from `options.warm_requests` on are counted, by the engine too.
  void run(const KeepGoing& keep_going);

  // Of the counted requests, as they were answered.
  std::vector<double> take_ttfts() { return std::move(ttfts_); }
  // Share of the time, from when the first of them began to the last answer's end, that the engine worked.
  double busy() const { return now_s_ > counted_from_s_ ? busy_s_ / (now_s_ - counted_from_s_) : 0; }

 private:
  struct Run {
    std::uint32_t request = 0;
    Prompt prompt;
    std::size_t cached = 0;  // contexts of its path, from the front, that it uses of the pool
    std::uint64_t reserved_bytes = 0;
    Served served;
    double loaded_at_s = 0, decode_s = 0;            // when the tiers have read; what is to be decoded then
    std::optional<SimulatedMeeting> meeting = {};    // while its front is computed, and its back is loaded
    std::uint64_t to_compute = 0, known_tokens = 0;  // of the prompt; and before them
    std::uint32_t answer_left = 0;
    bool begun = false, answered = false;  // something of it was computed; it has its first token
  };

  const TraceRequest& request_of(const Run& run) const { return trace_.requests[run.request]; }
  bool counted(const Run& run) const { return run.request >= options_.warm_requests; }
  bool admit();
  std::vector<Served::Part> pooled(const Run& run) const;
  Waits waits(const Run& run) const;
  void look_up(Run& run, std::span<const Served::Part> cached);
  void look_again(Run& run);
  std::vector<SimulatedMeeting::Range> met_ranges(const Run& run) const;
  void meet(Run& run);
  // Nothing is computed for it yet.
  bool loading(const Run& run) const {
    return run.loaded_at_s > now_s_ || (run.meeting && run.known_tokens >= run.meeting->limit());
  }
  void read(std::size_t tier, double seconds);
  bool step();
  double decode_loaded();
  bool one_waits() const { return next_ < trace_.requests.size() && trace_.requests[next_].arrival_s <= now_s_; }
  std::uint32_t decoding() const;
  double decode_s() const;
  double slowdown() const;
  // How long those who decode may wait for the next token, where decoding alone takes so long.
  double gap_s(double decode_s) const { return std::max(batching_.chunk_slowdown * decode_s, batching_.chunk_step_s); }
  double compute_chunks(std::uint32_t decoding, double decode_s, double loading_s);
  void first_token(Run& run);
  void last_token(Run& run);
  void read_for_moves(std::span<const std::uint64_t> bytes);
  void rest(double until_s);
  double next_event_s() const;

  const Trace& trace_;
  const Contexts& contexts_;
  const TieredOptions& options_;
  const BatchingOptions& batching_;
  TieredEngine& engine_;
  SimulatedPool pool_;
  std::vector<Run> running_;
  std::vector<double> tier_free_s_;  // by tier: when it has read what was asked of it
  std::uint32_t next_ = 0;           // of the trace's requests
  double now_s_ = 0, busy_s_ = 0, counted_from_s_ = 0;
  bool passed_ = false;  // short prompts passed the one whose turn it was in the last step
  std::vector<double> ttfts_;
};

}  // namespace shale
