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

// A pool, and all references to what is allocated of it as plain lists, one entry a reference.
class NaiveReferences {
 public:
  explicit NaiveReferences(std::uint32_t seed) : random_(seed) {}

  void step() {
    switch (random_() % 7) {
      case 0:
        return allocate(pool_->allocate_block(), blocks_, pool_->blocks_free());
      case 1:
        return allocate(pool_->allocate_page(), pages_, pool_->pages_free());
      case 2:
        if (!blocks_.empty()) pool_->retain_block(blocks_.emplace_back(pick(blocks_)));
        return;
      case 3:
        if (!pages_.empty()) pool_->retain_page(pages_.emplace_back(pick(pages_)));
        return;
      case 4:
        if (!blocks_.empty()) pool_->release_block(take(blocks_));
        return;
      case 5:
        if (!pages_.empty()) pool_->release_page(take(pages_));
        return;
      default:
        if (!blocks_.empty() && random_() % 8 == 0) split();
    }
  }

  void check() const {
    const auto sound = pool_->check_integrity();
    ASSERT_TRUE(sound) << sound.error().message;
    for (const PoolBlockId block : blocks_) ASSERT_EQ(pool_->references(block), std::ranges::count(blocks_, block));
    for (const PageId page : pages_) ASSERT_EQ(pool_->page_references(page), std::ranges::count(pages_, page));
  }

 private:
  template <class Id>
  static void allocate(const Result<Id>& allocated, std::vector<Id>& references, std::uint32_t free) {
    if (!allocated) {
      EXPECT_EQ(free, 0);
      return;
    }
    EXPECT_THAT(references, testing::Not(testing::Contains(*allocated)));
    references.push_back(*allocated);
  }
  template <class Id>
  Id pick(const std::vector<Id>& references) {
    return references[random_() % references.size()];
  }
  template <class Id>
  Id take(std::vector<Id>& references) {
    Id& place = references[random_() % references.size()];
    const Id taken = std::exchange(place, references.back());
    references.pop_back();
    return taken;
  }
  void split() {
    const PoolBlockId id = take(blocks_);
    if (pool_->references(id) != 1) return blocks_.push_back(id);
    pool_->split_block(id);
    for (std::uint32_t i = 0; i < kShape.pages_per_block(); ++i) pages_.push_back(pool_->page_of(id, i));
  }

  std::mt19937 random_;
  const std::unique_ptr<PagePool> pool_ = make_pool(6);
  std::vector<PoolBlockId> blocks_;
  std::vector<PageId> pages_;
};

// Random allocations, retains and releases against plain lists of references.
TEST(PagePool, CountsAgreeWithANaiveModel) {
  NaiveReferences references(1);
  for (int step = 0; step < 20000; ++step) {
    references.step();
    references.check();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace shale
