// What the engine's prefix tree evicts in a recorded run, the simulator evicts too, under every policy: the same code
// decides in both.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "eviction/policies.h"
#include "paging/prefix_tree.h"
#include "sim/made_trace.h"
#include "sim/prefix_cache.h"
#include "sim/simulate.h"

namespace shale::testing {
namespace {

constexpr PageShape kShape{.layers = 1, .kv_heads = 1, .head_dim = 8, .block_size = 8};
constexpr std::uint32_t kCapacity = 30,
                        kPoolBlocks = kCapacity + 16;  // room to insert a path before the tree is trimmed

// Passes everything on and writes down what goes. Blocks get the trace's numbers for keys, so that policies that sample
// keys see the same in both runs.
class Recorder final : public EvictionPolicy {
 public:
  struct Record {
    std::span<const BlockId> request;  // in flight
    std::vector<BlockId> evicted;
  };
  Recorder(std::unique_ptr<EvictionPolicy> policy, Record& record) : policy_(std::move(policy)), record_(record) {}

  void access(const PathAccess& visit) override {
    const std::vector<NodeKey> keys(record_.request.begin(),
                                    record_.request.begin() + static_cast<std::ptrdiff_t>(visit.path.size()));
    for (std::size_t i = 0; i < keys.size(); ++i) blocks_[visit.path[i]] = record_.request[i];
    PathAccess renamed = visit;
    renamed.keys = keys;
    policy_->access(renamed);
  }
  NodeId victim() override { return policy_->victim(); }
  void evicted(NodeId node, NodeId parent, bool parent_is_leaf) override {
    record_.evicted.push_back(blocks_.at(node));
    policy_->evicted(node, parent, parent_is_leaf);
  }
  void pass_over(NodeId node) override { policy_->pass_over(node); }
  void reconsider() override { policy_->reconsider(); }

 private:
  std::unique_ptr<EvictionPolicy> policy_;
  Record& record_;
  std::map<NodeId, BlockId> blocks_;
};

std::unique_ptr<EvictionPolicy> make_policy(std::string_view name) {
  return std::move(make_eviction_policy(name, {.capacity_blocks = kCapacity, .seed = 3}).value());
}

// The trace's blocks as the engine sees them: pages of tokens. Siblings differ in their first token.
std::vector<std::int32_t> tokens_of(std::span<const BlockId> blocks) {
  std::vector<std::int32_t> tokens;
  for (const BlockId block : blocks) tokens.insert(tokens.end(), kShape.block_size, static_cast<std::int32_t>(block));
  return tokens;
}

struct Outcome {
  std::vector<BlockId> evicted;
  std::uint64_t reused = 0;
};

Outcome run_engine(const Trace& trace, std::string_view policy) {
  const auto pool = std::move(PagePool::create(kShape, kPoolBlocks * kShape.block_bytes()).value());
  Recorder::Record record;
  Outcome outcome;
  PrefixTree tree(*pool, std::make_unique<Recorder>(make_policy(policy), record));
  for (const TraceRequest& request : trace.requests) {
    record.request = trace.prompt(request);
    const std::vector<std::int32_t> tokens = tokens_of(record.request);
    {
      Sequence sequence(*pool);
      const std::uint32_t reused = tree.adopt(tokens, sequence, request.arrival_s);
      outcome.reused += reused / kShape.block_size;
      EXPECT_TRUE(sequence.append(static_cast<std::uint32_t>(tokens.size()) - reused));
      EXPECT_TRUE(tree.insert(tokens, sequence));
    }
    EXPECT_TRUE(tree.evict_until_free(kPoolBlocks - kCapacity));
  }
  outcome.evicted = std::move(record.evicted);
  return outcome;
}

Outcome run_simulator(const Trace& trace, std::string_view name) {
  struct Evictions final : CacheObserver {
    void inserted(BlockId) override {}
    void evicted(BlockId block) override { blocks.push_back(block); }
    std::vector<BlockId> blocks;
  } evictions;
  const auto policy = make_policy(name);
  PrefixCache cache(kCapacity, trace.unique_blocks(), *policy);
  cache.observe(&evictions);
  Outcome outcome;
  for (const TraceRequest& request : trace.requests) {
    outcome.reused += cache.serve(
        {.path = trace.prompt(request), .prompt_blocks = request.prompt_blocks, .time_s = request.arrival_s});
  }
  outcome.evicted = evictions.blocks;
  return outcome;
}

class EngineReplay : public ::testing::TestWithParam<std::string_view> {};

INSTANTIATE_TEST_SUITE_P(Registry, EngineReplay, ::testing::ValuesIn(eviction_policy_names()),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(EngineReplay, TheSimulatorEvictsWhatTheEngineDid) {
  const Trace trace = random_trace(5, 1500);
  const Outcome engine = run_engine(trace, GetParam()), simulator = run_simulator(trace, GetParam());
  ASSERT_GT(engine.evicted.size(), 500u);
  EXPECT_EQ(engine.reused, simulator.reused);
  EXPECT_EQ(engine.evicted, simulator.evicted);
}

// The engine's tree does not tell policies how long answers are.
TEST_P(EngineReplay, ARunFindsWhatTheEngineDidHoweverLongAnswersAre) {
  Trace trace = random_trace(6, 1500);
  for (std::uint32_t i = 0; i < 1500; ++i) trace.requests[i].output_tokens = i % 7 < 3 ? 5 : 500 * (i % 5);
  const auto result = simulate(trace, {.policy = std::string(GetParam()), .blocks = kCapacity, .seed = 3});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->blocks_reused, run_engine(trace, GetParam()).reused);
}

}  // namespace
}  // namespace shale::testing
