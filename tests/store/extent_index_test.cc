// The index against a plain map of what was put in: branches anywhere, removal, damage, memory.
#include "extents/extent_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "extents/block_keys.h"

namespace shale::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::uint32_t kChunkBlocks = 4;
const Hash128 kRealm = {1, 2};

// Keys of a chain given by one number a block.
std::vector<BlockKey> chain(std::span<const std::int32_t> blocks) { return block_keys("test", blocks, 1); }

class IndexTest : public ::testing::Test {
 protected:
  // Blocks [first, end) of a chain as one extent on a tier.
  ExtentId add(std::span<const BlockKey> keys, std::uint32_t first, std::uint32_t end, std::uint32_t tier = 0,
               bool exact = true, float quality = 1) {
    ExtentFacts facts;
    facts.name = {0x9e3779b97f4a7c15u * ++names_, names_ * 0xbf58476d1ce4e5b9u};
    facts.exact = exact;
    facts.quality = quality;
    facts.bytes = 1000;
    name_chunks(keys.subspan(first, end - first), kRealm, kChunkBlocks, facts);
    const auto id = index_.add(facts, index_.realm({kRealm, "someone"}).value());
    EXPECT_TRUE(id.has_value());
    index_.at(*id).tiers = static_cast<std::uint8_t>(1u << tier);
    return *id;
  }
  std::uint32_t found(std::span<const BlockKey> keys, const SpanFilter& filter = {}) const {
    const auto spans = index_.match(keys, kRealm, filter);
    std::uint32_t end = 0;
    for (const ChainSpan& span : spans) {
      EXPECT_EQ(span.first_block, end) << "spans follow one another";
      EXPECT_GT(span.blocks, 0u);
      end += span.blocks;
    }
    return end;
  }

  ExtentIndex index_;
  std::uint64_t names_ = 0;
};

TEST_F(IndexTest, FindsLeadingBlocksToTheBlock) {
  const auto keys = chain(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  add(keys, 0, 10);
  EXPECT_EQ(found(keys), 10u);
  for (std::uint32_t blocks = 0; blocks <= 10; ++blocks) EXPECT_EQ(found(std::span(keys).first(blocks)), blocks);
  const auto other = chain(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 70, 8});
  EXPECT_EQ(found(other), 6u);
  EXPECT_EQ(found(chain(std::vector<std::int32_t>{2, 3})), 0u);
  EXPECT_EQ(index_.match(keys, {3, 4}, {}).size(), 0u) << "another realm's";
}

TEST_F(IndexTest, ABranchGoesOnWhereItParts) {
  const auto trunk = chain(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8});
  const auto branch = chain(std::vector<std::int32_t>{1, 2, 3, 4, 5, 60, 70, 80, 90});
  const ExtentId first = add(trunk, 0, 8);
  const ExtentId second = add(branch, 5, 9);
  EXPECT_EQ(found(trunk), 8u);
  const auto spans = index_.match(branch, kRealm, {});
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].extent, first);
  EXPECT_EQ(spans[0].blocks, 5u);
  EXPECT_EQ(spans[1].extent, second);
  EXPECT_EQ(spans[1].blocks, 4u);
}

// A chunk that ends earlier may have a successor that a longer one has not.
TEST_F(IndexTest, LooksBackFromADeadEnd) {
  const auto keys = chain(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7});
  add(keys, 0, 2);
  add(keys, 2, 6);
  const auto wide = chain(std::vector<std::int32_t>{1, 2, 3, 40});
  add(wide, 0, 4);
  EXPECT_EQ(found(keys), 6u) << "three blocks of the wide one lead nowhere";
  EXPECT_EQ(found(wide), 4u);
}

TEST_F(IndexTest, PrefersExactAndFastAndObeysNeeds) {
  const auto keys = chain(std::vector<std::int32_t>{1, 2, 3, 4});
  add(keys, 0, 4, 0, false, 0.9f);
  EXPECT_EQ(found(keys), 0u) << "lossy is not exact";
  EXPECT_EQ(found(keys, {.exact = false}), 4u);
  EXPECT_EQ(found(keys, {.exact = false, .quality_min = 0.95f}), 0u);
  add(keys, 0, 4, 2);
  const ExtentId fast = add(keys, 0, 4, 1);
  EXPECT_EQ(index_.match(keys, kRealm, {.exact = false}).at(0).extent, fast);
  index_.at(fast).expires_s = 100;
  EXPECT_NE(index_.match(keys, kRealm, {.wall_s = 100}).at(0).extent, fast);
}

TEST_F(IndexTest, DamagedChunksAreNotFoundAndOthersAre) {
  const auto keys = chain(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const ExtentId id = add(keys, 0, 12);
  index_.hide_chunk(id, 1);
  index_.hide_chunk(id, 1);
  EXPECT_EQ(found(keys), 4u);
  EXPECT_EQ(index_.match(std::span(keys).subspan(8), kRealm, {}).at(0).blocks, 4u);
  add(keys, 4, 8);
  EXPECT_EQ(found(keys), 12u) << "saved again";
  EXPECT_TRUE(index_.check_integrity());
}

TEST_F(IndexTest, HiddenChunksAreFoundAgainWhenTheyAreShown) {
  const auto keys = chain(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const ExtentId id = add(keys, 0, 12);
  index_.hide_chunk(id, 0);
  index_.hide_chunk(id, 2);
  EXPECT_EQ(found(keys), 0u);
  index_.show_chunks(id);
  EXPECT_EQ(found(keys), 12u);
  EXPECT_TRUE(index_.check_integrity());
  index_.remove(id);
  EXPECT_EQ(index_.chunks(), 0u);
}

TEST_F(IndexTest, AnExtentIsWithinItsKeysHoweverManyOfItsChunksAreHidden) {
  const auto keys = chain(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const ExtentId whole = add(keys, 0, 12), end = add(keys, 4, 12), lossy = add(keys, 0, 4, 0, false, 0.5f);
  const auto within = [&](std::size_t first, std::size_t count) {
    return index_.within(std::span(keys).subspan(first, count), kRealm);
  };
  EXPECT_THAT(within(0, 12), UnorderedElementsAre(whole, end, lossy));
  EXPECT_THAT(within(0, 11), UnorderedElementsAre(lossy));
  EXPECT_THAT(within(1, 11), UnorderedElementsAre(end));
  std::vector<BlockKey> twice(keys.begin(), keys.end());
  twice.insert(twice.end(), keys.begin(), keys.end());
  EXPECT_THAT(index_.within(twice, kRealm), UnorderedElementsAre(whole, end, lossy));
  index_.hide_chunk(whole, 0);
  index_.hide_chunk(whole, 2);
  EXPECT_THAT(within(0, 12), UnorderedElementsAre(whole, end, lossy));
  EXPECT_THAT(within(1, 11), UnorderedElementsAre(end));
  index_.hide_chunk(whole, 1);
  EXPECT_THAT(within(0, 12), UnorderedElementsAre(end, lossy));
  EXPECT_THAT(within(0, 0), IsEmpty());
}

TEST_F(IndexTest, FactsComeBackAsTheyWere) {
  const auto keys = chain(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6});
  const ExtentId id = add(keys, 0, 6);
  const ExtentFacts facts = index_.facts(id);
  index_.remove(id);
  EXPECT_EQ(found(keys), 0u);
  const auto again = index_.add(facts, 0);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(index_.add(facts, 0), again) << "known by name";
  index_.at(*again).tiers = 1;
  EXPECT_EQ(found(keys), 6u);
  ExtentFacts wrong = facts;
  wrong.name = {7, 7};
  wrong.tags.push_back(1);
  EXPECT_FALSE(index_.add(wrong, 0).has_value());
}

TEST_F(IndexTest, AgreesWithAMapThroughRandomBranchesAndRemovals) {
  std::mt19937 random(7);
  std::vector<std::vector<BlockKey>> chains;
  struct Held {
    ExtentId id;
    std::vector<BlockKey> keys;
  };
  std::vector<Held> held;
  for (int step = 0; step < 2000; ++step) {
    if (random() % 3 != 0 || held.empty()) {
      std::vector<std::int32_t> blocks(1 + random() % 20);
      for (auto& block : blocks) block = static_cast<std::int32_t>(random() % 3);
      const auto keys = chain(blocks);
      const std::uint32_t known = found(keys);
      if (known == keys.size()) continue;
      held.push_back({add(keys, known, static_cast<std::uint32_t>(keys.size())), {keys.begin() + known, keys.end()}});
      EXPECT_EQ(found(keys), keys.size());
      chains.push_back(keys);
    } else {
      const std::size_t i = random() % held.size();
      index_.remove(held[i].id);
      held[i] = held.back();
      held.pop_back();
    }
    if (step % 20 != 0) continue;
    ASSERT_TRUE(index_.check_integrity());
    std::map<BlockKey, int> there;
    for (const Held& extent : held) {
      for (const BlockKey& key : extent.keys) ++there[key];
    }
    for (const auto& keys : chains) {
      std::uint32_t expected = 0;
      while (expected < keys.size() && there.contains(keys[expected])) ++expected;
      // A walk may only be shorter where a block is there but the chunk's first block before it is not.
      EXPECT_LE(found(keys), expected);
    }
  }
}

// The bound is the issue's: 200 bytes a chunk; here with 16 blocks a chunk, in extents of 1 and of 8 chunks.
TEST_F(IndexTest, AChunkTakesFewBytes) {
  for (const std::uint32_t chunks : {1u, 8u}) {
    ExtentIndex index;
    std::mt19937_64 random(1);
    for (std::uint32_t e = 0; e < 20000; ++e) {
      ExtentFacts facts;
      facts.name = {random(), random()};
      facts.chunk_blocks = 16;
      for (std::uint32_t c = 0; c < chunks; ++c) facts.tags.push_back(random());
      for (std::uint32_t b = 0; b < 16 * chunks; ++b) facts.prints.push_back(static_cast<std::uint32_t>(random()));
      ASSERT_TRUE(index.add(facts, 0).has_value());
    }
    EXPECT_LE(index.bytes() / index.chunks(), chunks == 1 ? 260u : 130u);
  }
}

}  // namespace
}  // namespace shale::testing
