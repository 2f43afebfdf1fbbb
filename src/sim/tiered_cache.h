// A trace against a cache of contexts on several tiers, compressed or not: the planners that the cache itself runs, on
// the trace's clock. No bytes are moved; what moving them would take is added up.
//
// A request loads as many of its contexts from the first as are there soonest, with the rest of what is stored
// computed, and computes what follows (beside others, with batching, computing counts as 1 / 0.6). Where the planner
// weighs quality, a lossy form counts as α · (1 − quality) later.
//
//   ttft = Σ over tiers used (latency + bytes / bandwidth) + Σ decode + prefill of what is computed
//
// Requests do not wait for one another, so that the times compare planners and are not a server's under load; unless
//
//   servers    a request first waits until one of them is free, which is busy for its ttft, decoding running beside;
//   batching   one engine computes them together, step by step, in the order of `shale serve`, answers included, while
//              tiers read for others; what takes about as long to load as to compute it does both with, from both
//              ends (batched_engine.h says what is left out).
//
// Contexts that were computed become cached prefixes when their request has its first token, and not before: others
// that begin until then compute them as well. Answers whose blocks the trace tells become such, too: with batching when
// they are complete, else with the first token. They are placed by the PlacementState that the cache itself has, with
// one round of it after each prompt and one after each such answer; with batching also, while nobody is served, round
// after round until it is at rest. While the lowest tier has room, it gets an exact copy of what is stored above it, to
// make other forms of. Moves read and write; what is cut where it lies moves no bytes, nor does what goes exact to
// where its copy lies.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "placement/placement_state.h"
#include "sim/hardware.h"
#include "sim/simulate.h"

namespace shale {

// One way to compress a context: what it measured.
struct CompressedForm {
  std::string method;
  double keep = 1;
  double bytes_share = 1;  // of the uncompressed cache
  double quality = 1;      // [0, 1] against the full cache
  double decode_s_per_full_byte = 0;
  std::optional<double> expected = {};  // what planners take the quality for; nothing: they know it
};
// A context's; `full` is not among them, it needs no measurement.
using ContextProfile = std::vector<CompressedForm>;

// EngineOptions has what the fields mean.
struct BatchingOptions {
  std::uint32_t sequences_max = 16, chunk_tokens = 512;
  double chunk_slowdown = 1.7, chunk_step_s = 0.05;
  std::uint64_t pool_bytes = 0;  // 0: room for all that runs, and nothing is found there
};

struct TieredOptions {
  Hardware hardware;
  // Each context takes one of them: at random, by its number and the seed; or not, then one after another, in the order
  // in which the trace has them first. Empty: `full` is all there is.
  std::vector<ContextProfile> profiles = {};
  bool spread_profiles = true;
  std::string planner = "shale";
  std::string fixed_method = {};  // for `fixed` and `impress`: of the profiles
  double fixed_keep = 1;
  double alpha = 1;          // seconds per unit of quality
  double half_life_s = 600;  // of the frequency of accesses
  // What a promotion has to save, as a server's; no request waits for one here. 0: moves take nobody's time.
  double move_s_per_byte = kMoveSPerByte;
  bool divide_by_bytes = true;  // PlannerOptions
  std::uint64_t seed = 0;
  std::uint32_t servers = 0;  // that serve one request each at a time, in order of arrival; 0: nobody waits
  std::optional<BatchingOptions> batching = {};
  std::uint64_t warm_requests = 0;  // the first so many are served, and not counted
};

// By method and keep.
using TokensByForm = std::map<std::pair<std::string, double>, std::uint64_t>;

struct TieredResult {
  std::uint64_t requests = 0;  // served; fewer than the trace's where a run was stopped
  std::uint64_t tokens = 0;    // of prompts
  std::uint64_t tokens_computed = 0;
  std::uint64_t tokens_pooled = 0;           // found in the engine's own pool
  std::vector<std::uint64_t> tokens_loaded;  // by tier
  TokensByForm tokens_lossy = {};            // found in the pool or loaded
  std::vector<std::uint64_t> bytes_read;     // by tier: by requests, and by moves
  std::vector<std::uint64_t> bytes_written;
  Percentiles ttft;  // from arrival, waiting included
  double ttft_mean_s = 0;
  double busy = 0;     // share of the servers' time, until the last is done; of the steps', with batching
  double quality = 1;  // mean over requests of the mean over a prompt's tokens
  double seconds = 0;  // that the run took
};

// Asked before every kRequestsBetweenLooks requests, with their number so far: false ends the run, which returns what
// it has.
using KeepGoing = std::function<bool(std::uint64_t requests)>;
inline constexpr std::uint64_t kRequestsBetweenLooks = 256;

// kInvalidArgument: an unknown planner or method, capacities or rates that make no sense.
Result<TieredResult> simulate_tiers(const Trace& trace, const TieredOptions& options, const KeepGoing& keep_going = {});

}  // namespace shale
