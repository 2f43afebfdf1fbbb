// The tree with every policy, the pool and sequences together: random requests, forks, evictions and releases,
// integrity and contents after every step.
#include "paging/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "eviction/policies.h"
#include "paging/naive_sequence.h"

namespace shale {
namespace {

constexpr PageShape kShape{.layers = 2, .kv_heads = 1, .head_dim = 8, .block_size = 8};

struct Request {
  std::vector<std::int32_t> tokens;
  NaiveSequence sequence;
};

class PrefixTreeWithPolicy : public testing::TestWithParam<std::string_view> {
 protected:
  static constexpr std::uint32_t kPoolBlocks = 12;

  void check(const std::vector<Request>& requests) {
    const auto pool_sound = pool_->check_integrity();
    ASSERT_TRUE(pool_sound) << pool_sound.error().message;
    const auto tree_sound = tree_.check_integrity();
    ASSERT_TRUE(tree_sound) << tree_sound.error().message;
    std::uint64_t references = 0, held = tree_.nodes();
    for (PoolBlockId block = 0; block < pool_->blocks_total(); ++block) references += pool_->references(block);
    for (const Request& request : requests) {
      request.sequence.check();
      for (const PageSlot slot : request.sequence.sequence().table(0, 0).pages)
        held += !pool_->is_split(pool_->block_of(slot.page));
    }
    ASSERT_EQ(references, held);
  }

  // A new request: its tokens' values derive from the tokens, so any holder of a prefix holds the same. How many tokens
  // it found.
  std::uint32_t begin_request(std::vector<Request>& requests, std::mt19937& random) {
    Request request{{}, NaiveSequence(*pool_)};
    for (std::size_t i = 0, length = 1 + random() % 50; i < length; ++i) {
      request.tokens.push_back(static_cast<std::int32_t>(random() % 100 < 97 ? i % 7 : random() % 3));
    }
    const std::uint32_t matched = tree_.match(request.tokens);
    EXPECT_EQ(request.sequence.adopt(tree_, request.tokens), matched);
    if (requests.size() == 4) requests.erase(requests.begin() + random() % 4);
    requests.push_back(std::move(request));
    return matched;
  }

  std::unique_ptr<PagePool> pool_ = std::move(PagePool::create(kShape, kPoolBlocks* kShape.block_bytes()).value());
  PrefixTree tree_{*pool_, std::move(make_eviction_policy(GetParam(), {.capacity_blocks = kPoolBlocks}).value())};
};

INSTANTIATE_TEST_SUITE_P(Registry, PrefixTreeWithPolicy, testing::ValuesIn(eviction_policy_names()),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(PrefixTreeWithPolicy, AgreesWithANaiveModel) {
  std::mt19937 random(11);
  std::vector<Request> requests;
  std::uint32_t reused = 0, refused = 0;
  for (int step = 0; step < 4000; ++step) {
    switch (random() % 9) {
      case 0:
      case 1:
      case 2:
        reused += begin_request(requests, random);
        break;
      case 3:
      case 4:  // compute what is missing, some or all
        if (!requests.empty()) {
          Request& request = requests[random() % requests.size()];
          const std::size_t missing = request.tokens.size() - request.sequence.sequence().length();
          const std::size_t count = random() % 2 ? missing : random() % (missing + 1);
          if (!request.sequence.append_tokens(request.tokens, static_cast<std::uint32_t>(count))) {
            ++refused;
            tree_.evict_until_free(kShape.pages_for(static_cast<std::uint32_t>(count)) + 1);
          }
        }
        break;
      case 5:
        if (!requests.empty()) {
          const Request& request = requests[random() % requests.size()];
          const auto computed = std::span(request.tokens).first(request.sequence.sequence().length());
          ASSERT_TRUE(tree_.insert(computed, request.sequence.sequence()));
          ASSERT_EQ(tree_.match(computed), computed.size());
        }
        break;
      case 6:
        if (requests.size() > 3)
          requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(random() % requests.size()));
        break;
      case 7:
        if (random() % 50 == 0) tree_.clear();
        if (const std::uint32_t wanted = static_cast<std::uint32_t>(random() % (kPoolBlocks / 2));
            tree_.evict_until_free(wanted)) {
          ASSERT_GE(pool_->blocks_free(), wanted);
        }
        break;
      case 8:
        if (!requests.empty() && random() % 10 == 0) {
          const Sequence& sequence = requests[random() % requests.size()].sequence.sequence();
          tree_.give_up(sequence.blocks(sequence.length()));
        }
        break;
    }
    check(requests);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(reused, 1000);
  EXPECT_GT(refused, 10);
  EXPECT_GT(tree_.evictions(), 100);
  requests.clear();
  EXPECT_TRUE(tree_.evict_until_free(kPoolBlocks));
  EXPECT_EQ(tree_.nodes(), 0);
}

TEST_P(PrefixTreeWithPolicy, ReusesWhatStays) {
  // A hot prefix visited between others outlives them under every policy worth its name.
  std::vector<std::int32_t> hot(24, 1);
  const auto serve = [&](const std::vector<std::int32_t>& tokens) {
    Sequence sequence(*pool_);
    const std::uint32_t matched = tree_.adopt(tokens, sequence);
    ASSERT_TRUE(tree_.evict_until_free(4));
    ASSERT_TRUE(sequence.append(static_cast<std::uint32_t>(tokens.size()) - matched));
    ASSERT_TRUE(tree_.insert(tokens, sequence));
  };
  for (std::int32_t i = 0; i < 100; ++i) {
    serve(hot);
    serve(std::vector<std::int32_t>(24, 1000 + i));
  }
  EXPECT_EQ(tree_.match(hot), 24);
  EXPECT_GT(tree_.evictions(), 100);
}

}  // namespace
}  // namespace shale
