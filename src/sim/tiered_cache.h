// A trace against a cache of contexts on several tiers, compressed or not: the planners that the cache itself runs, on
// the trace's clock. No bytes are moved; what moving them would take is added up.
//
// A request loads the longest prefix of its contexts that is stored, where loading is sooner than computing, and
// computes the rest:
//
//   ttft = Σ over tiers used (latency + bytes / bandwidth) + Σ decode + prefill of what is computed
//
// Loading does not overlap with computing. With `servers` a request first waits until one of them is free, which is
// busy for its ttft, decoding running beside; without, requests do not wait for one another, so that the times compare
// planners and are not a server's under load. Contexts that were computed become cached prefixes, placed by the
// PlacementState that the cache itself has, with one round of it after each request.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "placement/placement.h"
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
};
// A context's; `full` is not among them, it needs no measurement.
using ContextProfile = std::vector<CompressedForm>;

struct TieredOptions {
  Hardware hardware;
  // Each context takes one of them, by its number and the seed. Empty: `full` is all there is.
  std::vector<ContextProfile> profiles = {};
  std::string planner = "shale";
  std::string fixed_method = {};  // for `fixed` and `impress`: of the profiles
  double fixed_keep = 1;
  double alpha = 1;             // seconds per unit of quality
  double half_life_s = 600;     // of the frequency of accesses
  bool divide_by_bytes = true;  // PlannerOptions
  std::uint64_t seed = 0;
  std::uint32_t servers = 0;  // that serve one request each at a time, in order of arrival; 0: nobody waits
};

struct TieredResult {
  std::uint64_t requests = 0;  // served; fewer than the trace's where a run was stopped
  std::uint64_t tokens = 0;    // of prompts
  std::uint64_t tokens_computed = 0;
  std::vector<std::uint64_t> tokens_loaded;  // by tier
  std::vector<std::uint64_t> bytes_read;     // by tier: by requests, and by moves to other tiers
  std::vector<std::uint64_t> bytes_written;
  Percentiles ttft;  // from arrival, waiting included
  double ttft_mean_s = 0;
  double busy = 0;     // share of the servers' time, until the last is done
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
