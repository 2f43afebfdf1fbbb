// How fast the simulator is, how its cost grows, and how much memory a block takes: `shale bench simulate`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "sim/prefix_cache.h"
#include "sim/simulate.h"

namespace shale::bench {

struct Served {
  std::uint64_t requested = 0, reused = 0;  // blocks
  double hit_ratio() const { return requested == 0 ? 0 : static_cast<double>(reused) / static_cast<double>(requested); }
};
// Puts the prompts of requests [from, to) through the cache.
Served serve(const Trace& trace, std::size_t from, std::size_t to, PrefixCache& cache);

// What the optimum must know of a trace whose prompts are served in order.
std::vector<std::uint32_t> prompt_next_uses(const Trace& trace);

struct SimulationSpeedRow {
  std::string trace, policy;
  std::uint64_t lengthened = 1;  // how many times the trace's length, with blocks of their own
  std::uint64_t blocks = 0;      // that the cache holds
  std::uint64_t blocks_requested = 0;
  double seconds = 0;  // of the fastest of a few runs on one thread, the trace in memory
  // Policy and tree together at the end, by the ghosts and the most blocks that were resident at once.
  double bytes_per_block = 0;
  double blocks_per_second() const { return static_cast<double>(blocks_requested) / seconds; }
};

struct SimulationSpeedOptions {
  std::vector<std::uint64_t> blocks = {1'000, 5'000, 10'000};
  std::vector<std::uint64_t> lengthened = {10, 100};  // with the largest cache, and one as many times larger
  std::uint32_t runs = 3;                             // of the trace as it is; once where it is lengthened
};

// The trace `times` over, each time with blocks of its own and after the time before.
Trace lengthened(const Trace& trace, std::uint64_t times);

// Calls on_row for every policy and size, and then for every lengthening, policy and size.
Status speed_rows(const Trace& trace, const SimulationSpeedOptions& options,
                  const std::function<Status(const SimulationSpeedRow&)>& on_row);

struct SweepRow {
  std::uint64_t runs = 0, blocks_requested = 0;
  std::size_t threads = 0;
  double seconds = 0;
};
// Every policy with every scheduler at every size on every trace; only the optimum with schedulers that read the cache
// is left out.
Result<SweepRow> sweep_row(const std::vector<Trace>& traces, const std::vector<std::uint64_t>& blocks,
                           std::size_t threads, const Clock& clock);

// Requests of one block each, by a Zipf law of exponent 1: what caches without prefixes are compared on.
Trace flat_trace(std::uint64_t requests, std::uint64_t different, std::uint64_t seed);

}  // namespace shale::bench
