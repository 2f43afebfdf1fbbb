#include "paging/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "paging/naive_sequence.h"
#include "paging/queueing_device.h"

namespace shale {
namespace {

constexpr PageShape kShape{.layers = 2, .kv_heads = 2, .head_dim = 8, .block_size = 8};
constexpr std::uint32_t kHeads = 4;  // layers · kv_heads

std::unique_ptr<PagePool> make_pool(std::uint32_t blocks, const Device& device = HostDevice()) {
  return PagePool::create(kShape, blocks * kShape.block_bytes(), device).value();
}

TEST(Sequence, AppendsWholeBlocksAndCountsSlots) {
  const auto pool = make_pool(4);
  Sequence sequence(*pool);
  ASSERT_TRUE(sequence.append(11));
  EXPECT_EQ(sequence.length(), 11);
  EXPECT_EQ(pool->blocks_free(), 2);
  const HeadTable table = sequence.table(1, 1);
  EXPECT_EQ(table.tokens, 11);
  ASSERT_EQ(table.pages.size(), 2);
  EXPECT_EQ(table.pages[0].count, 8);
  EXPECT_EQ(table.pages[1].count, 3);
  ASSERT_TRUE(sequence.append(5));
  EXPECT_EQ(pool->blocks_free(), 2);
  EXPECT_EQ(sequence.appended(0, 0, 4, 5).slot, 7);
  EXPECT_EQ(sequence.blocks(16).size(), 2);
  EXPECT_EQ(sequence.blocks(8).size(), 1);
  EXPECT_TRUE(sequence.blocks(17).empty());
}

TEST(Sequence, FullLeavesEverythingAsItWas) {
  const auto pool = make_pool(2);
  Sequence sequence(*pool);
  ASSERT_TRUE(sequence.append(9));
  EXPECT_EQ(sequence.append(8).error().code, ErrorCode::kFull);
  EXPECT_EQ(sequence.length(), 9);
  EXPECT_EQ(sequence.table(0, 0).tokens, 9);
  EXPECT_TRUE(sequence.append(7));  // into the last block
  Sequence fork = sequence.fork();
  fork.truncate(15);
  EXPECT_EQ(fork.append(1).error().code, ErrorCode::kFull);  // the copy of the shared block has no room
  EXPECT_EQ(fork.length(), 15);
  ASSERT_TRUE(pool->check_integrity());
}

TEST(Sequence, TheCopyIsMadeByWhoAppends) {
  const auto pool = make_pool(3);
  Sequence first(*pool);
  ASSERT_TRUE(first.append(3));
  Sequence second = first.fork();
  EXPECT_EQ(pool->blocks_free(), 2);
  ASSERT_TRUE(second.append(1));
  EXPECT_EQ(pool->blocks_free(), 1);
  EXPECT_NE(first.table(0, 0).pages[0].page, second.table(0, 0).pages[0].page);
  ASSERT_TRUE(first.append(1));  // its only holder again: written in place
  EXPECT_EQ(pool->blocks_free(), 1);
}

TEST(Sequence, HeadsKeepTheirFirstRowsWhereTheyLie) {
  const auto pool = make_pool(8);
  Sequence sequence(*pool);
  ASSERT_TRUE(sequence.append(40));
  const std::vector<PoolBlockId> blocks = sequence.blocks(40);
  sequence.keep_rows(8, 16, std::vector<std::uint32_t>{0, 3, 9, 16});
  EXPECT_TRUE(sequence.lossy());
  EXPECT_EQ(sequence.length(), 40u);
  EXPECT_EQ(pool->pages_free(), 3u * kHeads + 2 + 1);
  EXPECT_EQ(sequence.table(0, 0).tokens, 24u);
  EXPECT_EQ(sequence.table(1, 1).tokens, 40u);
  EXPECT_EQ(sequence.table(1, 0).pages[2].page, pool->page_of(blocks[2], 2));
  EXPECT_EQ(sequence.table(1, 0).pages[2].count, 1u);
  EXPECT_THAT(sequence.blocks(8), testing::ElementsAre(blocks[0]));
  EXPECT_THAT(sequence.last_blocks(24, 16), testing::ElementsAre(blocks[3], blocks[4]));
  sequence.keep_rows(32, 8, std::vector<std::uint32_t>(kHeads, 2));
  EXPECT_EQ(sequence.table(0, 1).tokens, 8u + 3 + 8 + 2);
  ASSERT_TRUE(sequence.append(3));
  EXPECT_EQ(sequence.table(0, 1).tokens, 8u + 3 + 8 + 2 + 3);
  ASSERT_TRUE(sequence.check_integrity());
  ASSERT_TRUE(pool->check_integrity());
}

TEST(Sequence, WholeBlocksOfAnotherFollow) {
  const auto pool = make_pool(4);
  Sequence loaded(*pool);
  ASSERT_TRUE(loaded.append(16));
  Sequence sequence(*pool);
  ASSERT_TRUE(sequence.append(8));
  sequence.append_blocks(loaded.blocks(16));
  EXPECT_EQ(sequence.length(), 24u);
  EXPECT_EQ(pool->blocks_free(), 1u);
  const std::vector<PoolBlockId> blocks = loaded.blocks(16);
  loaded.clear();
  EXPECT_EQ(sequence.table(0, 0).pages[1].page, pool->page_of(blocks[0], 0));
  ASSERT_TRUE(sequence.append(1));
  ASSERT_TRUE(sequence.check_integrity());
}

// Random forks, appends, truncations and rows kept; contents against a naive model after every step.
template <class AnyDevice>
class Sequences : public ::testing::Test {};
using AllDevices = ::testing::Types<HostDevice, QueueingDevice>;
TYPED_TEST_SUITE(Sequences, AllDevices);

TYPED_TEST(Sequences, AgreeWithANaiveModel) {
  for (const std::uint32_t blocks : {6u, 40u}) {
    std::mt19937 engine(blocks);
    const auto random = [&engine] { return static_cast<std::uint32_t>(engine()); };
    const auto pool = make_pool(blocks, TypeParam());
    std::vector<NaiveSequence> sequences;
    for (int i = 0; i < 3; ++i) sequences.emplace_back(*pool);
    for (int step = 0; step < 3000; ++step) {
      NaiveSequence& sequence = sequences[random() % sequences.size()];
      switch (random() % 9) {
        case 0:
        case 1:
        case 2:
          sequence.append(random() % 13, random());
          break;
        case 3:
          sequence.truncate(random());
          break;
        case 4:
          sequence.keep_rows(random());
          break;
        case 5:
          sequences[random() % sequences.size()].become_fork_of(sequence);
          break;
        case 6:
          if (random() % 4 == 0) sequence.clear();
          break;
        case 7:
          sequence.become_prefix_of(sequences[random() % sequences.size()], random());
          break;
        case 8:
          sequence.append_blocks_of(sequences[random() % sequences.size()], random());
          break;
      }
      for (const NaiveSequence& each : sequences) each.check();
      const auto sound = pool->check_integrity();
      ASSERT_TRUE(sound) << sound.error().message;
      if (testing::Test::HasFailure()) return;
    }
    sequences.clear();
    EXPECT_EQ(pool->blocks_free(), blocks);
  }
}

}  // namespace
}  // namespace shale
