// Requests on one engine that computes them together, step by step, as `shale serve` does: every forward step computes
// a token of each request that decodes, and chunks of prompts (engine/batch.h). Private to the room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/lru_map.h"
#include "sim/tiered_engine.h"

namespace shale {

// The engine's own pool: contexts that requests use, and those that are kept for later ones, evicted by LRU.
class SimulatedPool {
 public:
  // A capacity of 0: it holds all that runs, and keeps nothing.
  SimulatedPool(const Contexts& contexts, std::uint64_t token_bytes, std::uint64_t capacity_bytes);

  // How many of these contexts, from the front, lie there.
  std::size_t find(std::span<const ContextId> path) const;
  // A request uses those that lie there, and `own_bytes` beside; false where these do not fit what others use.
  bool begin(std::span<const ContextId> there, std::uint64_t own_bytes);
  // Of its own bytes, the contexts behind the first `there` become the pool's, as far as others have not left them
  // meanwhile. How many lie there now, which it uses.
  std::size_t leave(std::span<const ContextId> path, std::size_t there, std::uint64_t& own_bytes);
  void end(std::span<const ContextId> there, std::uint64_t own_bytes);

 private:
  struct Held {
    bool there = false;
    std::uint32_t users = 0;
  };
  std::uint64_t bytes(ContextId id) const { return contexts_.all()[id].tokens * token_bytes_; }

  const Contexts& contexts_;
  const std::uint64_t token_bytes_, capacity_bytes_;
  std::vector<Held> held_;          // by ContextId
  LruMap<ContextId, bool> unused_;  // of those that lie there
  std::uint64_t used_bytes_ = 0, unused_bytes_ = 0;
};

class BatchedEngine {
 public:
  // All outlive it; `options.batching` is there.
  BatchedEngine(const Trace& trace, const Contexts& contexts, const TieredOptions& options, TieredEngine& engine);

  // Requests of the trace begin in order of arrival; those from `options.warm_requests` on are counted, by the engine
  // too.
  void run(const KeepGoing& keep_going);

  std::vector<double> take_ttfts() { return std::move(ttfts_); }
  // Tokens of the counted prompts that are in no block that the trace names.
  std::uint64_t unnamed_tokens() const { return unnamed_tokens_; }
  // Share of the time, from the first counted arrival to the last answer's end, that steps took.
  double busy() const { return now_s_ > counted_from_s_ ? busy_s_ / (now_s_ - counted_from_s_) : 0; }

 private:
  struct Run {
    std::uint32_t request = 0;
    std::vector<ContextId> path;
    std::size_t pooled = 0;  // contexts of the path, from its front, that it has in common with the pool
    std::uint64_t own_bytes = 0;
    double loaded_at_s = 0;
    std::uint64_t left = 0, at = 0;  // tokens of the prompt to compute, and before them
    bool answered = false;           // it has its first token
    std::uint32_t answer_left = 0;
  };

  const TraceRequest& request_of(const Run& run) const { return trace_.requests[run.request]; }
  bool admit();
  double load(const Served& served);
  bool step();
  double compute_chunks(std::uint32_t decoding, double decode_s);
  void first_token(Run& run);
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
  std::uint64_t unnamed_tokens_ = 0;
  std::vector<double> ttfts_;
};

}  // namespace shale
