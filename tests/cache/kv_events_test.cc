#include "cache/kv_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace shale::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using Kind = KvEvent::Kind;

constexpr std::uint32_t kBlock = 16;

struct Chain {
  std::vector<std::int32_t> tokens;
  std::vector<BlockKey> keys;

  std::vector<std::uint64_t> names(std::size_t first, std::size_t end) const {
    std::vector<std::uint64_t> names;
    for (std::size_t i = first; i < end; ++i) names.push_back(KvEvents::name_of(keys[i]));
    return names;
  }
  std::vector<std::int32_t> tokens_of(std::size_t first, std::size_t end) const {
    return {tokens.begin() + static_cast<std::ptrdiff_t>(first * kBlock),
            tokens.begin() + static_cast<std::ptrdiff_t>(end * kBlock)};
  }
  // Of the blocks from `first` to `end`, as the store tells it.
  StoreEvent at_rest(StoreEvent::Kind kind, std::uint32_t tier, std::uint32_t first, std::uint32_t end) const {
    StoreEvent event{.kind = kind, .tier = tier, .first_block = first, .block_tokens = kBlock};
    if (first > 0) event.parent = keys[first - 1];
    event.keys.assign(keys.begin() + first, keys.begin() + end);
    if (kind == StoreEvent::Kind::kStored) event.tokens = tokens_of(first, end);
    return event;
  }
};

Chain chain_of(std::size_t blocks, std::int32_t seed = 1, const KeyExtras& extras = {}) {
  Chain chain{.tokens = std::vector<std::int32_t>(blocks * kBlock), .keys = {}};
  std::iota(chain.tokens.begin(), chain.tokens.end(), 1000 * seed);
  chain.keys = block_keys("", chain.tokens, kBlock, extras);
  return chain;
}

KvEvents watching(std::uint32_t block_tokens = kBlock, std::size_t blocks_max = 1000) {
  return KvEvents({.block_tokens = block_tokens,
                   .tiers = {KvMedium::kCpu, KvMedium::kStorage, KvMedium::kStorage, std::nullopt},
                   .blocks_max = blocks_max});
}

class KvEventsTest : public ::testing::Test {
 protected:
  // Without the first, which clears.
  std::vector<KvEvent> taken(KvEvents& events) {
    std::vector<KvEvent> all = events.take();
    if (!std::exchange(begun_, true)) {
      EXPECT_EQ(all.at(0).kind, Kind::kCleared);
      all.erase(all.begin());
    }
    return all;
  }
  KvEvents events_ = watching();
  bool begun_ = false;
};

TEST_F(KvEventsTest, TellEachBlockOfThePoolOnceUntilItIsGone) {
  const Chain chain = chain_of(4);
  events_.in_pool(chain.tokens_of(0, 2), std::span(chain.keys).first(2));
  events_.in_pool(chain.tokens, chain.keys);
  auto told = taken(events_);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].medium, KvMedium::kGpu);
  EXPECT_EQ(told[0].parent, std::nullopt);
  EXPECT_EQ(told[0].tokens, chain.tokens_of(0, 2));
  EXPECT_EQ(told[1].parent, chain.names(1, 2)[0]);
  EXPECT_THAT(told[1].blocks, ElementsAreArray(chain.names(2, 4)));

  events_.evicted(chain.names(3, 4)[0]);
  events_.evicted(chain.names(2, 3)[0]);
  events_.evicted(12345);  // never told
  told = taken(events_);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, Kind::kRemoved);
  EXPECT_THAT(told[0].blocks, ElementsAre(chain.names(3, 4)[0], chain.names(2, 3)[0]));
  events_.in_pool(chain.tokens, chain.keys);
  told = taken(events_);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0].blocks, ElementsAreArray(chain.names(2, 4)));
}

TEST_F(KvEventsTest, NamesAreTheLowBitsOfKeys) {
  BlockKey key = {};
  key[24] = std::byte{0x12};
  key[31] = std::byte{0x34};
  key[0] = std::byte{0xff};
  EXPECT_EQ(KvEvents::name_of(key), 0x1200000000000034u);
}

TEST_F(KvEventsTest, OfSeveralTiersOfAMediumTheLastCounts) {
  const Chain chain = chain_of(2);
  for (const std::uint32_t tier : {0u, 1u, 2u, 3u}) {
    events_.at_rest(chain.at_rest(StoreEvent::Kind::kStored, tier, 0, 2));
  }
  auto told = taken(events_);
  ASSERT_EQ(told.size(), 2u);  // the last tier is others' as well
  EXPECT_EQ(told[0].medium, KvMedium::kCpu);
  EXPECT_EQ(told[1].medium, KvMedium::kStorage);
  events_.at_rest(chain.at_rest(StoreEvent::Kind::kRemoved, 1, 0, 2));
  EXPECT_TRUE(taken(events_).empty());
  events_.at_rest(chain.at_rest(StoreEvent::Kind::kRemoved, 2, 0, 2));
  told = taken(events_);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].medium, KvMedium::kStorage);
  EXPECT_THAT(told[0].blocks, ElementsAreArray(chain.names(0, 2)));
}

TEST_F(KvEventsTest, NothingLossyOrOfOthersIsPromised) {
  const Chain chain = chain_of(2), salted = chain_of(2, 1, {"\nsalt"});
  StoreEvent lossy = chain.at_rest(StoreEvent::Kind::kStored, 0, 0, 2);
  lossy.exact = false;
  events_.at_rest(lossy);
  StoreEvent tenants = chain.at_rest(StoreEvent::Kind::kStored, 0, 0, 2);
  tenants.tenant = "somebody";
  events_.at_rest(tenants);
  StoreEvent nameless = chain.at_rest(StoreEvent::Kind::kStored, 0, 0, 2);
  nameless.tokens.clear();
  events_.at_rest(nameless);
  events_.at_rest(salted.at_rest(StoreEvent::Kind::kStored, 0, 0, 2));
  EXPECT_TRUE(taken(events_).empty());
  // The lossy form of what lies there exactly, too, takes nothing with it.
  events_.at_rest(chain.at_rest(StoreEvent::Kind::kStored, 0, 0, 2));
  EXPECT_EQ(taken(events_).size(), 1u);
  lossy.kind = StoreEvent::Kind::kRemoved;
  events_.at_rest(lossy);
  EXPECT_TRUE(taken(events_).empty());
}

TEST_F(KvEventsTest, LargerBlocksLieWhereTheirLastPartDoes) {
  KvEvents events = watching(2 * kBlock);
  const Chain chain = chain_of(7);
  events.in_pool(chain.tokens, chain.keys);
  auto told = taken(events);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].block_tokens, 2 * kBlock);
  EXPECT_THAT(told[0].blocks, ElementsAre(chain.names(1, 2)[0], chain.names(3, 4)[0], chain.names(5, 6)[0]));
  EXPECT_EQ(told[0].tokens, chain.tokens_of(0, 6));
  // An extent that begins in the middle of one.
  events.at_rest(chain.at_rest(StoreEvent::Kind::kStored, 0, 3, 7));
  told = taken(events);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0].blocks, ElementsAre(chain.names(5, 6)[0]));
  EXPECT_EQ(told[0].parent, chain.names(3, 4)[0]);
  EXPECT_EQ(told[0].tokens, chain.tokens_of(4, 6));
}

TEST_F(KvEventsTest, WhatNobodyTakesIsForgottenAndToldAgainWhenUsed) {
  KvEvents events = watching(kBlock, 8);
  const Chain first = chain_of(5, 1), second = chain_of(5, 2);
  events.in_pool(first.tokens, first.keys);
  events.in_pool(second.tokens, second.keys);
  auto told = events.take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, Kind::kCleared);
  events.evicted(first.names(4, 5)[0]);
  EXPECT_TRUE(events.take().empty());
  events.in_pool(first.tokens, first.keys);
  told = events.take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].blocks.size(), 5u);
  events.at_rest({.kind = StoreEvent::Kind::kLost});
  EXPECT_EQ(events.take().at(0).kind, Kind::kCleared);
}

}  // namespace
}  // namespace shale::testing
