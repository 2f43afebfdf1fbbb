#include "core/buffer_pool.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace shale {
namespace {

TEST(BufferPoolTest, ReusesBuffersOfNearlyTheSize) {
  const auto pool = BufferPool::make(10 << 20);
  auto buffer = pool->get(1 << 20);
  const std::byte* const address = buffer->data();
  buffer.reset();
  EXPECT_EQ(pool->spare_bytes(), 1u << 20);
  buffer = pool->get((1 << 20) - 5000);
  EXPECT_EQ(buffer->data(), address);
  EXPECT_EQ(buffer->size(), (1u << 20) - 5000);
  EXPECT_EQ(pool->spare_bytes(), 0u);
  buffer.reset();
  EXPECT_NE(pool->get(4096)->data(), address) << "a small read does not hold a large buffer";
}

TEST(BufferPoolTest, KeepsNoMoreThanItMayAndDropsTheOldest) {
  const auto pool = BufferPool::make(3 << 20);
  {
    std::vector<std::shared_ptr<AlignedBuffer>> held;
    for (int i = 0; i < 5; ++i) held.push_back(pool->get(1 << 20));
  }
  EXPECT_EQ(pool->spare_bytes(), 3u << 20);
}

// Sizes that do not come again would fill it otherwise.
TEST(BufferPoolTest, DropsWhatNobodyHasHadUseFor) {
  const auto pool = BufferPool::make(1 << 30);
  pool->get(3 << 20).reset();
  for (std::uint64_t i = 1; i < BufferPool::kUnusedTakesMax; ++i) pool->get(1 << 20).reset();
  EXPECT_EQ(pool->spare_bytes(), 4u << 20);
  for (int i = 0; i < 2; ++i) pool->get(1 << 20).reset();
  EXPECT_EQ(pool->spare_bytes(), 1u << 20);
}

TEST(BufferPoolTest, BuffersOutliveThePool) {
  auto pool = BufferPool::make(1 << 20);
  const auto buffer = pool->get(5000);
  pool.reset();
  buffer->data()[4999] = std::byte{1};
  EXPECT_EQ(buffer->size(), 5000u);
}

TEST(BufferPoolTest, PrefersABufferOfJustTheSize) {
  const auto pool = BufferPool::make(10 << 20);
  auto exact = pool->get(1 << 20), larger = pool->get((1 << 20) + kIoAlignment);
  const std::byte* const address = exact->data();
  exact.reset();
  larger.reset();  // the most recently used
  EXPECT_EQ(pool->take(1 << 20).data(), address);
}

TEST(BufferPoolTest, TakesWhatWasMadeElsewhere) {
  const auto pool = BufferPool::make(1 << 20);
  AlignedBuffer taken = pool->take(5000);
  EXPECT_EQ(pool->spare_bytes(), 0u);
  pool->share(std::move(taken)).reset();
  EXPECT_EQ(pool->spare_bytes(), 8192u);
}

}  // namespace
}  // namespace shale
