#include "microbench/simulate.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "eviction/optimum.h"
#include "eviction/policies.h"
#include "sim/sweep.h"

namespace shale::bench {
namespace {

std::uint64_t allocated_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// What a policy and its tree hold at a trace's end, less the trace's: the array that turns blocks into nodes, and what
// the optimum knows of the future.
Result<double> bytes_per_block(const Trace& trace, const std::string& policy_name, std::uint64_t blocks) {
  const auto future = policy_name == kOptimum ? prompt_next_uses(trace) : std::vector<std::uint32_t>();
  const std::uint64_t before = allocated_bytes();
  std::unique_ptr<EvictionPolicy> policy;
  if (policy_name == kOptimum) {
    policy = make_optimum(future);
  } else {
    SHALE_ASSIGN(policy, make_eviction_policy(policy_name, {.capacity_blocks = blocks}));
  }
  PrefixCache cache(blocks, trace.unique_blocks(), *policy);
  serve(trace, 0, trace.requests.size(), cache);
  const auto held = static_cast<double>(allocated_bytes() - before);
  return (held - 4 * static_cast<double>(trace.unique_blocks())) /
         static_cast<double>(cache.resident_blocks_max() + policy->ghosts());
}

Result<SimulationSpeedRow> measure_policy(const Trace& trace, const std::string& policy, std::uint64_t blocks,
                                          std::uint32_t runs) {
  SimulationSpeedRow row{.trace = trace.name, .policy = policy, .blocks = blocks};
  row.seconds = std::numeric_limits<double>::infinity();
  for (std::uint32_t i = 0; i < runs; ++i) {
    SHALE_ASSIGN(const SimulationResult result, simulate(trace, {.policy = policy, .blocks = blocks}));
    row.seconds = std::min(row.seconds, result.seconds);
    row.blocks_requested = result.blocks_requested;
  }
  SHALE_ASSIGN(row.bytes_per_block, bytes_per_block(trace, policy, blocks));
  return row;
}

}  // namespace

Served serve(const Trace& trace, std::size_t from, std::size_t to, PrefixCache& cache) {
  Served served;
  for (std::size_t i = from; i < to; ++i) {
    const TraceRequest& request = trace.requests[i];
    served.requested += request.prompt_blocks;
    served.reused += cache.serve({.path = trace.prompt(request),
                                  .prompt_blocks = request.prompt_blocks,
                                  .last_is_partial = trace.last_is_partial(request),
                                  .answer_tokens = request.output_tokens,
                                  .time_s = request.arrival_s});
  }
  return served;
}

std::vector<std::uint32_t> prompt_next_uses(const Trace& trace) {
  std::vector<std::uint32_t> asked;
  asked.reserve(trace.blocks.size());
  for (const TraceRequest& request : trace.requests) {
    const auto prompt = trace.prompt(request);
    asked.insert(asked.end(), prompt.begin(), prompt.end());
  }
  return next_uses(asked, static_cast<std::uint32_t>(trace.unique_blocks()));
}

Trace lengthened(const Trace& trace, std::uint64_t times) {
  Trace longer{.name = trace.name, .block_tokens = trace.block_tokens, .requests = {}, .blocks = {}, .parents = {}};
  const double length_s = trace.requests.empty() ? 0 : trace.requests.back().arrival_s + 1;
  longer.requests.reserve(times * trace.requests.size());
  longer.blocks.reserve(times * trace.blocks.size());
  longer.parents.reserve(times * trace.parents.size());
  for (std::uint64_t i = 0; i < times; ++i) {
    const auto first = static_cast<BlockId>(longer.parents.size());
    for (TraceRequest request : trace.requests) {
      request.arrival_s += static_cast<double>(i) * length_s;
      request.first_block += i * trace.blocks.size();
      longer.requests.push_back(request);
    }
    for (const BlockId block : trace.blocks) longer.blocks.push_back(block + first);
    for (const BlockId parent : trace.parents) longer.parents.push_back(parent == kNoBlock ? kNoBlock : parent + first);
  }
  return longer;
}

Status speed_rows(const Trace& trace, const SimulationSpeedOptions& options,
                  const std::function<Status(const SimulationSpeedRow&)>& on_row) {
  for (const auto policy : simulation_policy_names()) {
    for (const std::uint64_t blocks : options.blocks) {
      SHALE_ASSIGN(const auto row, measure_policy(trace, std::string(policy), blocks, options.runs));
      SHALE_TRY(on_row(row));
    }
  }
  for (const std::uint64_t times : options.lengthened) {
    const Trace longer = lengthened(trace, times);
    for (const auto policy : simulation_policy_names()) {
      for (const std::uint64_t blocks : {options.blocks.back(), times * options.blocks.back()}) {
        SHALE_ASSIGN(auto row, measure_policy(longer, std::string(policy), blocks, 1));
        row.lengthened = times;
        SHALE_TRY(on_row(row));
      }
    }
  }
  return {};
}

Result<SweepRow> sweep_row(const std::vector<Trace>& traces, const std::vector<std::uint64_t>& blocks,
                           std::size_t threads, const Clock& clock) {
  std::vector<SweepRun> runs;
  for (const Trace& trace : traces) {
    for (const auto policy : simulation_policy_names()) {
      for (const auto scheduler : scheduler_names()) {
        for (const std::uint64_t size : blocks) {
          SimulationOptions run{.policy = std::string(policy), .scheduler = std::string(scheduler), .blocks = size};
          if (policy == kOptimum && !order_is_fixed(run)) continue;
          runs.push_back({&trace, std::move(run)});
        }
      }
    }
  }
  SweepRow row{.runs = runs.size(), .threads = threads};
  const double start_s = clock.now_s();
  SHALE_TRY(sweep(runs, threads,
                  {[&](std::size_t, const SimulationResult& result) -> Status {
                     row.blocks_requested += result.blocks_requested;
                     return {};
                   },
                   [](std::size_t) { return true; }}));
  row.seconds = clock.now_s() - start_s;
  return row;
}

Trace flat_trace(std::uint64_t requests, std::uint64_t different, std::uint64_t seed) {
  // The sum of 1/rank up to a rank grows as its logarithm, so a uniform logarithm gives the rank.
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  Trace trace{.name = "flat", .block_tokens = 512, .requests = {}, .blocks = {}, .parents = {}};
  std::vector<BlockId> numbers(different, kNoBlock);
  for (std::uint64_t i = 0; i < requests; ++i) {
    const double rank = std::exp(unit(random) * std::log(static_cast<double>(different) + 1));
    BlockId& number = numbers[std::min(static_cast<std::uint64_t>(rank), different) - 1];
    if (number == kNoBlock) {
      number = static_cast<BlockId>(trace.parents.size());
      trace.parents.push_back(kNoBlock);
    }
    trace.requests.push_back({.arrival_s = static_cast<double>(i),
                              .input_tokens = trace.block_tokens,
                              .output_tokens = 0,
                              .first_block = i,
                              .prompt_blocks = 1,
                              .output_blocks = 0});
    trace.blocks.push_back(number);
  }
  return trace;
}

}  // namespace shale::bench
