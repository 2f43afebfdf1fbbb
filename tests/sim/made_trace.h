// Traces made in code, and a cache that does by scanning what the simulator does fast.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trace/trace.h"

namespace shale::testing {

struct MadeRequest {
  double arrival_s = 0;
  std::vector<int> ids;  // of its blocks, each after the ones before it
  std::uint32_t output_tokens = 0;
  std::uint32_t output_blocks = 0;  // of `ids`, at the end
};

inline Trace make_trace(const std::vector<MadeRequest>& requests, std::uint32_t block_tokens = 4) {
  Trace trace{.name = "made", .block_tokens = block_tokens, .requests = {}, .blocks = {}, .parents = {}};
  std::map<std::pair<BlockId, int>, BlockId> numbers;
  for (const MadeRequest& request : requests) {
    const auto prompt_blocks = static_cast<std::uint32_t>(request.ids.size()) - request.output_blocks;
    trace.requests.push_back({.arrival_s = request.arrival_s,
                              .input_tokens = prompt_blocks * block_tokens,
                              .output_tokens = request.output_tokens,
                              .first_block = trace.blocks.size(),
                              .prompt_blocks = prompt_blocks,
                              .output_blocks = request.output_blocks});
    BlockId block = kNoBlock;
    for (const int id : request.ids) {
      const auto [known, fresh] = numbers.try_emplace({block, id}, static_cast<BlockId>(trace.parents.size()));
      if (fresh) trace.parents.push_back(block);
      block = known->second;
      trace.blocks.push_back(block);
    }
  }
  return trace;
}

// Documents of different popularity and length, whose prefixes branch; a few requests share each timestamp.
inline Trace random_trace(std::uint32_t seed, int requests) {
  std::mt19937 engine(seed);
  const auto random = [&engine] { return static_cast<unsigned>(engine()); };
  std::vector<MadeRequest> made;
  double now_s = 0;
  for (int i = 0; i < requests; ++i) {
    if (random() % 3 == 0) now_s += static_cast<double>(random() % 5);
    MadeRequest request{.arrival_s = now_s, .ids = {}};
    const unsigned document = std::min(random() % 12, random() % 12);
    for (unsigned depth = 0, length = 1 + random() % 9; depth < length; ++depth) {
      request.ids.push_back(static_cast<int>(depth == 0 ? document : random() % 4 == 0 ? random() % 3 : 7));
    }
    made.push_back(std::move(request));
  }
  return make_trace(made);
}

// What a policy that ranks leaves may know.
struct NaiveBlock {
  std::uint64_t last_access = 0, visits = 0, inserted = 0;
};

class NaiveCache {
 public:
  using Rank = std::function<double(const NaiveBlock&)>;  // the lowest goes; of equals the one inserted last

  NaiveCache(const Trace& trace, std::uint64_t capacity, Rank rank)
      : trace_(trace), capacity_(capacity), rank_(std::move(rank)) {}

  std::size_t resident_prefix(std::span<const BlockId> path) const {
    std::size_t resident = 0;
    while (resident < path.size() && blocks_.contains(path[resident])) ++resident;
    return resident;
  }
  // As the scheduler's look-up: at the clock as it stands, and no use.
  std::size_t touch(std::span<const BlockId> path) {
    const std::size_t resident = resident_prefix(path);
    for (const BlockId block : path.first(resident)) blocks_[block].last_access = clock_;
    return resident;
  }
  std::size_t serve(std::span<const BlockId> path) {
    ++clock_;
    const std::size_t resident = touch(path);
    for (const BlockId block : path.first(resident)) ++blocks_[block].visits;
    for (const BlockId block : path.subspan(resident)) blocks_[block] = {clock_, 1, ++inserted_};
    while (blocks_.size() > capacity_) evict();
    return resident;
  }
  const std::vector<BlockId>& evicted() const { return evicted_; }

 private:
  void evict() {
    std::map<BlockId, int> children;
    for (const auto& [block, state] : blocks_) ++children[trace_.parents[block]];
    auto lowest = blocks_.end();
    for (auto each = blocks_.begin(); each != blocks_.end(); ++each) {
      if (children.contains(each->first)) continue;
      const auto key = [&](const auto& it) {
        return std::pair(rank_(it->second), -static_cast<std::int64_t>(it->second.inserted));
      };
      if (lowest == blocks_.end() || key(each) < key(lowest)) lowest = each;
    }
    evicted_.push_back(lowest->first);
    blocks_.erase(lowest);
  }

  const Trace& trace_;
  std::uint64_t capacity_, clock_ = 0, inserted_ = 0;
  Rank rank_;
  std::map<BlockId, NaiveBlock> blocks_;
  std::vector<BlockId> evicted_;
};

struct NaiveOutcome {
  std::uint64_t reused = 0;
  std::vector<std::uint32_t> order;
  std::vector<BlockId> evicted;
};

// Batches of equal timestamps, or of windows, by the scheduler's definition.
inline NaiveOutcome naive_simulate(const Trace& trace, std::uint64_t capacity, const NaiveCache::Rank& rank,
                                   const std::string& scheduler, double window_s = 0, double alpha = 1,
                                   double beta = 1) {
  NaiveCache cache(trace, capacity, rank);
  NaiveOutcome outcome;
  const auto batch_of = [&](std::uint32_t id) {
    return window_s > 0 ? std::floor(trace.requests[id].arrival_s / window_s) : trace.requests[id].arrival_s;
  };
  const auto prompt = [&](std::uint32_t id) { return trace.prompt(trace.requests[id]); };
  for (std::uint32_t next = 0; next < trace.requests.size();) {
    std::vector<std::uint32_t> batch;
    for (const double current = batch_of(next); next < trace.requests.size() && batch_of(next) == current; ++next) {
      batch.push_back(next);
    }
    const auto shorter = [&](std::uint32_t a, std::uint32_t b) { return prompt(a).size() < prompt(b).size(); };
    if (scheduler == "shortest") std::ranges::stable_sort(batch, shorter);
    if (scheduler == "longest") {
      std::ranges::stable_sort(batch, [&](std::uint32_t a, std::uint32_t b) { return shorter(b, a); });
    }
    while (!batch.empty()) {
      std::size_t chosen = 0;
      if (scheduler == "reuse") {
        std::vector<double> scores;
        for (const std::uint32_t id : batch) {
          scores.push_back(alpha * static_cast<double>(cache.touch(prompt(id))) - beta * trace.requests[id].arrival_s);
        }
        chosen = static_cast<std::size_t>(std::ranges::max_element(scores) - scores.begin());
      }
      outcome.order.push_back(batch[chosen]);
      outcome.reused += cache.serve(prompt(batch[chosen]));
      batch.erase(batch.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
  }
  outcome.evicted = cache.evicted();
  return outcome;
}

}  // namespace shale::testing
