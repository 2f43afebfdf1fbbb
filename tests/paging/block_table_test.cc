// What a sequence's tables hold, and what they cost: one block table while heads agree, an overlay once they do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "paging/sequence.h"

namespace {

std::atomic<std::size_t> bytes_allocated = 0;

void* allocate(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  if (!memory) std::abort();
  bytes_allocated += malloc_usable_size(memory);
  return memory;
}

void release(void* memory) {
  if (memory) bytes_allocated -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

// Of the whole test: what a sequence allocates is counted where it is allocated.
void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }

namespace shale {
namespace {

using testing::ElementsAre;

constexpr PageShape kShape{.layers = 2, .kv_heads = 2, .head_dim = 8, .block_size = 8};

std::unique_ptr<PagePool> make_pool(const PageShape& shape, std::uint32_t blocks) {
  return PagePool::create(shape, blocks * shape.block_bytes()).value();
}

std::vector<std::uint32_t> counts_of(const PageSlots& pages) {
  std::vector<std::uint32_t> counts;
  for (const PageSlot slot : pages) counts.push_back(slot.count);
  return counts;
}

// 128,000 tokens of 32 layers and 8 KV heads. No page is written, so that the pool is address space.
class LongSequence : public ::testing::Test {
 protected:
  static constexpr PageShape kLong{.layers = 32, .kv_heads = 8, .head_dim = 8};
  static constexpr std::uint32_t kTokens = 128000;
  static constexpr std::size_t kBytesMax = 64 << 10;

  template <class Make>
  static std::size_t bytes_of(const Make& make) {
    const std::size_t before = bytes_allocated;
    const auto held = make();
    return bytes_allocated - before + sizeof held;
  }

  std::unique_ptr<PagePool> pool_ = make_pool(kLong, kLong.pages_for(kTokens) + 2);
};

TEST_F(LongSequence, TakesLittleHoweverItCameToBe) {
  Sequence sequence(*pool_);
  const std::size_t token_by_token = bytes_of([&] {
    Sequence grown(*pool_);
    for (std::uint32_t i = 0; i < kTokens; ++i) EXPECT_TRUE(grown.append(1));
    sequence = std::move(grown);
    return 0;
  });
  EXPECT_LT(token_by_token, kBytesMax);
  EXPECT_GE(token_by_token, kLong.pages_for(kTokens) * sizeof(PoolBlockId)) << "is anything counted at all?";
  EXPECT_LT(bytes_of([&] { return sequence.fork(); }), kBytesMax);
  EXPECT_LT(bytes_of([&] {
              Sequence fork = sequence.fork();
              EXPECT_TRUE(fork.append(5));
              return fork;
            }),
            kBytesMax);
  EXPECT_LT(bytes_of([&] {
              Sequence adopted(*pool_);
              adopted.adopt_prefix(sequence.blocks(kTokens), kTokens);
              return adopted;
            }),
            kBytesMax);
  EXPECT_LT(bytes_of([&] { return sequence.outline(); }), kBytesMax);
  EXPECT_EQ(sequence.table(31, 7).tokens, kTokens);
  EXPECT_EQ(sequence.pages(), kLong.pages_for(kTokens) * kLong.pages_per_block());
}

TEST_F(LongSequence, HasAnOverlayOfWhatHeadsHoldByThemselves) {
  Sequence sequence(*pool_);
  ASSERT_TRUE(sequence.append(kTokens));
  const std::size_t bytes = bytes_of([&] {
    Sequence fork = sequence.fork();
    EXPECT_TRUE(fork.append(kLong.block_size));
    fork.keep_rows(kTokens, kLong.block_size, std::vector<std::uint32_t>(kLong.pages_per_block(), 7));
    EXPECT_EQ(fork.table(0, 0).tokens, kTokens + 7);
    return fork;
  });
  // A table and room for a page each.
  EXPECT_LT(bytes, kBytesMax + kLong.pages_per_block() * 256);
}

TEST(BlockTable, PagesAreComputedFromBlocks) {
  const auto pool = make_pool(kShape, 4);
  Sequence sequence(*pool);
  ASSERT_TRUE(sequence.append(19));
  const std::vector<PoolBlockId> blocks = sequence.blocks(19);
  for (std::uint32_t i = 0; i < kShape.pages_per_block(); ++i) {
    const HeadTable table = sequence.table(i / 2, i % 2);
    EXPECT_EQ(table.tokens, 19);
    ASSERT_THAT(counts_of(table.pages), ElementsAre(8, 8, 3));
    for (std::size_t p = 0; p < 3; ++p) EXPECT_EQ(table.pages[p].page, pool->page_of(blocks[p], i));
    EXPECT_EQ(table.pages.back().page, pool->page_of(blocks[2], i));
    EXPECT_THAT(counts_of(table.pages.first(2)), ElementsAre(8, 8));
    EXPECT_THAT(counts_of(table.pages.subspan(1, 2)), ElementsAre(8, 3));
    EXPECT_THAT(counts_of(table.pages.subspan(1, 2).subspan(1, 1)), ElementsAre(3));
    EXPECT_TRUE(table.pages.subspan(3, 0).empty());
  }
  sequence.truncate(16);
  EXPECT_THAT(counts_of(sequence.table(1, 1).pages), ElementsAre(8, 8));
  EXPECT_EQ(pool->blocks_free(), 2u);
  EXPECT_TRUE(Sequence(*pool).table(0, 1).pages.empty());
}

// Blocks before and after stay blocks; what lies between spans of which heads kept rows becomes each head's own.
TEST(BlockTable, RowsThatHeadsKeepLieBetweenBlocks) {
  const auto pool = make_pool(kShape, 16);
  Sequence sequence(*pool);
  ASSERT_TRUE(sequence.append(24));
  const std::vector<PoolBlockId> prefix = sequence.blocks(8);
  sequence.keep_rows(8, 16, std::vector<std::uint32_t>{0, 3, 9, 16});
  ASSERT_TRUE(sequence.append(10));
  EXPECT_THAT(counts_of(sequence.table(0, 0).pages), ElementsAre(8, 8, 2));
  EXPECT_THAT(counts_of(sequence.table(0, 1).pages), ElementsAre(8, 3, 8, 2));
  EXPECT_THAT(counts_of(sequence.table(1, 0).pages), ElementsAre(8, 8, 1, 8, 2));
  EXPECT_THAT(counts_of(sequence.table(1, 1).pages.subspan(1, 3)), ElementsAre(8, 8, 8));
  EXPECT_EQ(sequence.table(0, 0).pages[0].page, pool->page_of(prefix[0], 0));
  EXPECT_EQ(sequence.table(1, 1).pages[0].page, pool->page_of(prefix[0], 3));
  EXPECT_EQ(sequence.pages(), 3u * 4 + 0 + 1 + 2 + 2);
  EXPECT_EQ(sequence.resident(1, 0), 27u);
  const auto place = sequence.appended(1, 0, 9, 10);
  EXPECT_EQ(place.page, sequence.table(1, 0).pages.back().page);
  EXPECT_EQ(place.slot, 1u);

  ASSERT_TRUE(sequence.append(6));
  sequence.keep_rows(32, 8, std::vector<std::uint32_t>{1, 1, 1, 1});
  ASSERT_TRUE(sequence.append(4));
  EXPECT_THAT(counts_of(sequence.table(0, 1).pages), ElementsAre(8, 3, 8, 1, 4));
  ASSERT_TRUE(sequence.check_integrity());
  EXPECT_EQ(sequence.blocks(8), prefix);
  EXPECT_TRUE(sequence.blocks(9).empty());

  // A fork appends to a copy of the last block; neither sees the other's tokens, and neither loses what both have.
  Sequence fork = sequence.fork();
  ASSERT_TRUE(fork.append(3));
  EXPECT_NE(fork.table(0, 1).pages.back().page, sequence.table(0, 1).pages.back().page);
  EXPECT_THAT(counts_of(sequence.table(0, 1).pages), ElementsAre(8, 3, 8, 1, 4));
  EXPECT_THAT(counts_of(fork.table(0, 1).pages), ElementsAre(8, 3, 8, 1, 7));
  fork.truncate(fork.length() - 7);
  EXPECT_THAT(counts_of(fork.table(0, 1).pages), ElementsAre(8, 3, 8, 1));
  sequence.clear();
  ASSERT_TRUE(fork.check_integrity());
  fork.clear();
  EXPECT_EQ(pool->blocks_free(), 16u);
}

TEST(BlockTable, AForkOfARaggedSequenceKeepsWhatTheOtherDrops) {
  const auto pool = make_pool(kShape, 8);
  Sequence sequence(*pool);
  ASSERT_TRUE(sequence.append(20));
  sequence.part();
  std::vector<std::vector<std::uint32_t>> slots(4);
  slots[2] = {0, 1, 17};
  sequence.drop(slots);
  Sequence fork = sequence.fork();
  EXPECT_TRUE(fork.ragged());
  slots[2] = {2, 3, 4, 5, 6, 7};
  EXPECT_EQ(sequence.drop(slots).pages_freed, 0) << "the fork reads it";
  EXPECT_EQ(fork.resident(1, 0), 17u);
  EXPECT_EQ(sequence.resident(1, 0), 11u);
  ASSERT_TRUE(fork.append(1));
  EXPECT_THAT(counts_of(fork.table(1, 0).pages), ElementsAre(8, 8, 4, 1)) << "the shared last page stays as it is";
  EXPECT_EQ(fork.positions(1, 0)[3 * 8], 20u);
  ASSERT_TRUE(fork.check_integrity());
  ASSERT_TRUE(sequence.check_integrity());
}

// An outline of either kind lays out as many tokens, holes and positions as there were.
TEST(BlockTable, AnOutlineLaysOutTheSameTables) {
  const auto pool = make_pool(kShape, 16);
  Sequence sequence(*pool);
  ASSERT_TRUE(sequence.append(20));
  const auto expect_same = [&](const Sequence::Outline& outline) {
    EXPECT_EQ(outline.pages(), sequence.pages());
    Sequence again(*pool);
    ASSERT_TRUE(again.lay_out(outline));
    ASSERT_TRUE(again.check_integrity());
    EXPECT_EQ(again.length(), sequence.length());
    EXPECT_EQ(again.ragged(), sequence.ragged());
    EXPECT_EQ(again.lossy(), sequence.lossy());
    for (std::uint32_t i = 0; i < kShape.pages_per_block(); ++i) {
      const PageSlots was = sequence.table(i / 2, i % 2).pages, is = again.table(i / 2, i % 2).pages;
      ASSERT_EQ(is.size(), was.size());
      for (std::size_t p = 0; p < is.size(); ++p) {
        EXPECT_EQ(is[p].count, was[p].count);
        EXPECT_EQ(is[p].holes, was[p].holes);
        EXPECT_NE(is[p].page, was[p].page);
      }
      if (!again.ragged()) continue;
      EXPECT_THAT(again.positions(i / 2, i % 2), testing::ElementsAreArray(sequence.positions(i / 2, i % 2)));
    }
  };
  expect_same(sequence.outline());
  sequence.part();
  sequence.drop(std::vector<std::vector<std::uint32_t>>{{1, 9}, {}, {8, 9, 10, 11, 12, 13, 14, 15}, {19}});
  expect_same(sequence.outline());
  Sequence blocks(*pool);
  ASSERT_TRUE(blocks.append(8 * pool->blocks_free()));
  EXPECT_EQ(Sequence(*pool).lay_out(sequence.outline()).error().code, ErrorCode::kFull);
}

}  // namespace
}  // namespace shale
