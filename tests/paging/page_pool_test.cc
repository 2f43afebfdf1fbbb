#include "paging/page_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace shale {
namespace {

constexpr PageShape kShape{.layers = 2, .kv_heads = 3, .head_dim = 8, .block_size = 8};

std::unique_ptr<PagePool> make_pool(std::uint32_t blocks, const PageShape& shape = kShape) {
  return std::move(PagePool::create(shape, blocks * shape.block_bytes())).value();
}

TEST(PagePool, RefusesShapesThatItCannotHold) {
  for (const PageShape& shape :
       {PageShape{0, 3, 8, 8}, PageShape{2, 0, 8, 8}, PageShape{2, 3, 12, 8}, PageShape{2, 3, 8, 24}}) {
    const auto pool = PagePool::create(shape, 1 << 20);
    ASSERT_FALSE(pool.has_value());
    EXPECT_EQ(pool.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(PagePool::create({1, 1, 8, 8}, std::size_t{1} << 50).error().code, ErrorCode::kInvalidArgument);
}

TEST(PagePool, RoundsDownToWholeBlocksButHoldsAtLeastOne) {
  EXPECT_EQ((*PagePool::create(kShape, 1))->blocks_total(), 1);
  EXPECT_EQ((*PagePool::create(kShape, 3 * kShape.block_bytes() - 1))->blocks_total(), 2);
}

TEST(PagePool, PagesLieApartAndAligned) {
  for (const std::uint32_t block_size : {8u, 16u, 32u, 64u}) {
    const PageShape shape{.layers = 2, .kv_heads = 3, .head_dim = 24, .block_size = block_size};
    const auto pool = make_pool(2, shape);
    std::set<const Half*> starts;
    for (PageId page = 0; page < 2 * shape.pages_per_block(); ++page) {
      const PageView view = pool->host_view().page(page);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.keys) % 64, 0);
      EXPECT_EQ(view.values - view.keys, static_cast<std::ptrdiff_t>(shape.key_elements()));
      starts.insert(view.keys);
    }
    EXPECT_EQ(starts.size(), 2 * shape.pages_per_block());
    EXPECT_EQ(*starts.rbegin() - *starts.begin(),
              static_cast<std::ptrdiff_t>((starts.size() - 1) * 2 * shape.key_elements()));
  }
}

TEST(PagePool, SaysFullAndStaysUsable) {
  const auto pool = make_pool(2);
  const PoolBlockId first = *pool->allocate_block();
  const PoolBlockId second = *pool->allocate_block();
  EXPECT_NE(first, second);
  EXPECT_EQ(pool->allocate_block().error().code, ErrorCode::kFull);
  EXPECT_EQ(pool->allocate_page().error().code, ErrorCode::kFull);
  ASSERT_TRUE(pool->check_integrity());
  pool->release_block(first);
  EXPECT_EQ(*pool->allocate_block(), first);
}

TEST(PagePool, SplitBlocksBecomeWholeOnceEmpty) {
  const auto pool = make_pool(1);
  std::vector<PageId> pages;
  for (std::uint32_t i = 0; i < kShape.pages_per_block(); ++i) pages.push_back(*pool->allocate_page());
  EXPECT_EQ(std::set(pages.begin(), pages.end()).size(), pages.size());
  EXPECT_TRUE(pool->is_split(0));
  pool->retain_page(pages[0]);
  for (const PageId page : pages) pool->release_page(page);
  EXPECT_EQ(pool->blocks_free(), 0);
  EXPECT_EQ(pool->pages_free(), kShape.pages_per_block() - 1);
  EXPECT_EQ(pool->allocate_block().error().code, ErrorCode::kFull);
  pool->release_page(pages[0]);
  EXPECT_EQ(pool->blocks_free(), 1);
  EXPECT_TRUE(pool->allocate_block());
}

TEST(PagePool, AWholeBlockCanBeSplitAndGivenBackPageByPage) {
  const auto pool = make_pool(2);
  const PoolBlockId block = *pool->allocate_block();
  pool->split_block(block);
  ASSERT_TRUE(pool->check_integrity());
  pool->release_page(pool->page_of(block, 4));
  EXPECT_EQ(*pool->allocate_page(), pool->page_of(block, 4));  // split blocks fill before others are split
  for (std::uint32_t i = 0; i < kShape.pages_per_block(); ++i) pool->release_page(pool->page_of(block, i));
  EXPECT_EQ(pool->blocks_free(), 2);
  ASSERT_TRUE(pool->check_integrity());
}

TEST(PagePool, CopiesBytes) {
  const auto pool = make_pool(2);
  const PoolBlockId from = *pool->allocate_block(), to = *pool->allocate_block();
  for (std::uint32_t i = 0; i < kShape.pages_per_block(); ++i) {
    pool->host_view().writable_page(pool->page_of(from, i)).values[5].bits = static_cast<std::uint16_t>(100 + i);
  }
  pool->copy_block(from, to);
  for (std::uint32_t i = 0; i < kShape.pages_per_block(); ++i) {
    EXPECT_EQ(pool->host_view().page(pool->page_of(to, i)).values[5].bits, 100 + i);
  }
  pool->copy_page(pool->page_of(from, 1), pool->page_of(to, 2));
  EXPECT_EQ(pool->host_view().page(pool->page_of(to, 2)).values[5].bits, 101);
}

// Random allocations, retains and releases against plain maps of counts.
TEST(PagePool, CountsAgreeWithANaiveModel) {
  std::mt19937 random(1);
  const auto pool = make_pool(6);
  std::vector<PoolBlockId> blocks;  // one entry a reference
  std::vector<PageId> pages;
  const auto pick = [&](auto& references) -> auto& { return references[random() % references.size()]; };
  const auto drop = [](auto& references, auto& reference) {
    reference = references.back();
    references.pop_back();
  };
  for (int step = 0; step < 20000; ++step) {
    switch (random() % 7) {
      case 0:
        if (const auto block = pool->allocate_block()) {
          EXPECT_THAT(blocks, testing::Not(testing::Contains(*block)));
          blocks.push_back(*block);
        } else {
          EXPECT_EQ(pool->blocks_free(), 0);
        }
        break;
      case 1:
        if (const auto page = pool->allocate_page()) {
          EXPECT_THAT(pages, testing::Not(testing::Contains(*page)));
          pages.push_back(*page);
        } else {
          EXPECT_EQ(pool->pages_free(), 0);
        }
        break;
      case 2:
        if (!blocks.empty()) {
          blocks.push_back(pick(blocks));
          pool->retain_block(blocks.back());
        }
        break;
      case 3:
        if (!pages.empty()) {
          pages.push_back(pick(pages));
          pool->retain_page(pages.back());
        }
        break;
      case 4:
        if (!blocks.empty()) {
          PoolBlockId& block = pick(blocks);
          pool->release_block(block);
          drop(blocks, block);
        }
        break;
      case 5:
        if (!pages.empty()) {
          PageId& page = pick(pages);
          pool->release_page(page);
          drop(pages, page);
        }
        break;
      case 6:
        if (!blocks.empty() && random() % 8 == 0) {
          PoolBlockId& block = pick(blocks);
          const PoolBlockId id = block;
          if (pool->references(id) != 1) break;
          pool->split_block(id);
          drop(blocks, block);
          for (std::uint32_t i = 0; i < kShape.pages_per_block(); ++i) pages.push_back(pool->page_of(id, i));
        }
        break;
    }
    const auto sound = pool->check_integrity();
    ASSERT_TRUE(sound) << sound.error().message;
    for (const PoolBlockId block : blocks)
      ASSERT_EQ(pool->references(block), std::count(blocks.begin(), blocks.end(), block));
    for (const PageId page : pages)
      ASSERT_EQ(pool->page_references(page), std::count(pages.begin(), pages.end(), page));
  }
}

}  // namespace
}  // namespace shale
