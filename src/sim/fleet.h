// A trace against several engines behind a router, each with tiers of its own, over one store that all of them share:
// the planners and the state of every engine are those of tiered_cache.h.
//
// The lowest tier is shared, and holds all that any engine computed and stored, or what of it was put or read last; an
// engine learns of it, and of what has left, when it asks.
// While more than a second's transfers wait for the network, nothing is copied there that an engine has, and nothing is
// moved.
// Every engine serves so many requests at a time, which ones by its scheduling:
//
//   fcfs   in order of arrival, each to its first token
//   srpt   those of the shortest remaining time to their first token, less a quarter of their wait, as `shale serve`
//          does: what was begun goes on later where a shorter one arrives, from the end of the step that it is in. What
//          a request finds is decided when it begins; until then its time is an estimate, made anew when another has
//          its first token there
//
// A router chooses when a request arrives:
//
//   round_robin   one after another
//   prefix        the engine that was last sent the longest beginning of the prompt, as routers guess who keep a radix
//                 tree of what they sent; where more than 4 more wait or run there than at another, and where nobody
//                 was sent any of it, the one with the fewest
//   overlap       the engine whose own tiers hold the most of the prompt's beginning, by KV events alone; of equals the
//                 one with the fewest running, and then the first
//   events        the engine whose first token would come soonest, by what each holds now and what waits there
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "sim/tiered_cache.h"

namespace shale {

enum class FleetRouter : std::uint8_t { kRoundRobin, kPrefix, kOverlap, kEvents };
inline constexpr std::array<std::string_view, 4> kFleetRouters = {"round_robin", "prefix", "overlap", "events"};

enum class EngineScheduling : std::uint8_t { kFcfs, kSrpt };
inline constexpr std::array<std::string_view, 2> kEngineSchedulings = {"fcfs", "srpt"};

inline constexpr std::uint32_t kEnginesMax = 256;

struct FleetOptions {
  TieredOptions engine;  // of each; without profiles: what is shared is exact
  std::uint32_t engines = 1;
  FleetRouter router = FleetRouter::kEvents;
  EngineScheduling scheduling = EngineScheduling::kFcfs;
  // Tokens that a step computes, for srpt: a request that computes n takes n / step_tokens steps, rounded up, at
  // least 1.
  std::uint32_t step_tokens = 512;
  bool shares = true;                 // the lowest tier; false: each engine has all tiers for itself
  std::uint64_t store_bytes_max = 0;  // that it holds; 0: without bound
  double network_bytes_per_s = 0;  // of all transfers from and to the store together; 0: the engines' links alone limit
  double speed = 1;                // requests arrive so many times as fast as the trace says
};

struct FleetResult {
  TieredResult all;                 // of all engines together; `seconds` that the run took
  double duration_s = 0;            // from the first arrival to the last first token
  double busiest_share = 0;         // of the requests, that one engine got
  std::uint64_t store_bytes = 0;    // that lie in the store at the end
  std::uint64_t evicted_bytes = 0;  // from it
  std::uint64_t network_bytes = 0;  // from and to it
  std::uint64_t transfers = 0;      // likewise
  double network_mean_bytes_per_s = 0, network_peak_bytes_per_s = 0;  // the peak over ten seconds
  double network_busy = 0;  // share of its bandwidth, over the run; 0 where it is not limited
};

// As simulate_tiers; kInvalidArgument besides: no engine or more than kEnginesMax, steps of no tokens, profiles, a
// shared tier that is bounded in `engine`. Depends on its arguments alone, but for the seconds that it took.
Result<FleetResult> simulate_fleet(const Trace& trace, const FleetOptions& options, const KeepGoing& keep_going = {});

}  // namespace shale
