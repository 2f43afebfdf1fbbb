// A prefix cache without bytes: the tree of a trace's blocks that a cache of so many blocks would hold. The
// EvictionPolicy chooses what goes, the very one that the engine's prefix tree asks.
//
// The rules (A Systematic Study of KV Cache Management for Efficient LLM Inference, with the details that its table
// shows): a request looks up its longest resident prefix, inserts its whole path, and then leaves go one by one until
// no more than `capacity_blocks` are resident. The clock advances by one per request; all of a path is stamped alike.
//
// A block's number stands for its whole prefix, so residency is one array by BlockId (4 bytes a block of the trace);
// beside it the tree holds 12 bytes a node, and the policy what it holds. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "paging/eviction_policy.h"
#include "scheduling/scheduler.h"
#include "trace/trace.h"

namespace shale {

class PrefixCache final : public PrefixLookup {
 public:
  // Every BlockId is below `trace_blocks`. `capacity_blocks` > 0. The policy is empty and outlives the cache.
  PrefixCache(std::uint64_t capacity_blocks, std::uint64_t trace_blocks, EvictionPolicy& policy);

  struct Request {
    std::span<const BlockId> path;      // the prompt's blocks, and the answer's where they are known
    std::size_t prompt_blocks = 0;      // at the start of `path`: those that are looked up
    std::uint32_t nameless_blocks = 0;  // follow the path, take room and are never asked for again
    bool last_is_partial = false;
    std::uint32_t answer_tokens = 0;  // 0 where they are not known when the cache decides, as in the engine
    double time_s = 0;                // never goes back
  };
  // One request; returns how many of the prompt's blocks were resident.
  std::uint32_t serve(const Request& request);

  std::uint32_t resident_prefix(const WaitingRequest& request) const override;
  std::uint32_t touch_prefix(const WaitingRequest& request) override;

  // Told of every change from now on; null for nobody.
  void observe(CacheObserver* observer) { observer_ = observer; }

  std::uint64_t resident_blocks() const { return resident_blocks_; }
  // The most at once, so far: more than the capacity, as a request's whole path is resident before leaves go.
  std::uint64_t resident_blocks_max() const { return nodes_.size(); }
  std::uint64_t evictions() const { return evictions_; }

 private:
  struct Node {
    NodeId parent;  // of an unused node: the next unused one
    BlockId block;  // kNoBlock: nameless
    std::uint32_t children;
  };

  std::uint32_t find(std::span<const BlockId> blocks);
  void insert(BlockId block);
  void trim();

  std::uint64_t capacity_blocks_;
  EvictionPolicy& policy_;
  CacheObserver* observer_ = nullptr;
  std::vector<NodeId> nodes_of_;  // by BlockId
  std::vector<Node> nodes_;       // by NodeId
  NodeId unused_ = kNoNode;
  std::uint64_t resident_blocks_ = 0, evictions_ = 0, tick_ = 0;
  double time_s_ = 0;
  NodeKey next_nameless_;
  std::vector<NodeId> path_;  // of the request at hand, with its keys
  std::vector<NodeKey> keys_;
};

}  // namespace shale
