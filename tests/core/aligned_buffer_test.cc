#include "core/aligned_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace shale {
namespace {

TEST(AlignedBuffer, IsAlignedAndWholeBlocksLong) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, kIoAlignment, kIoAlignment + 1, std::size_t{1} << 20}) {
    AlignedBuffer buffer(size);
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(buffer.bytes().size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kIoAlignment, 0u);
    EXPECT_EQ(buffer.capacity() % kIoAlignment, 0u);
    EXPECT_GE(buffer.capacity(), size);
    std::memset(buffer.data(), 1, buffer.capacity());
  }
}

TEST(AlignedBuffer, WorkingMemoryStaysWhereItIsUntilItGrows) {
  AlignedBuffer memory;
  float* const first = memory.floats(2000);
  EXPECT_GE(memory.capacity(), 2000 * sizeof(float));
  EXPECT_EQ(memory.floats(10), first);
  EXPECT_EQ(memory.floats(2000), first);
  const std::size_t capacity = memory.capacity();
  memory.floats(20'000);
  EXPECT_GE(memory.capacity(), 20'000 * sizeof(float));
  EXPECT_GT(memory.capacity(), capacity);
}

TEST(AlignedBuffer, MovesWithoutCopying) {
  AlignedBuffer buffer(10);
  const std::byte* data = buffer.data();
  const AlignedBuffer moved = std::move(buffer);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.size(), 10u);
}

TEST(AlignedBuffer, ResizeKeepsTheBytes) {
  AlignedBuffer buffer(10);
  buffer.bytes()[0] = std::byte{7};
  buffer.resize(buffer.capacity());
  EXPECT_EQ(buffer.size(), buffer.capacity());
  EXPECT_EQ(buffer.bytes()[0], std::byte{7});
  EXPECT_FALSE(buffer.empty());
  buffer.resize(0);
  EXPECT_TRUE(buffer.empty());
}

TEST(AlignedBuffer, RoundsUp) {
  EXPECT_EQ(round_up(0, 8), 0u);
  EXPECT_EQ(round_up(1, 8), 8u);
  EXPECT_EQ(round_up(8, 8), 8u);
  EXPECT_EQ(round_up(9, 8), 16u);
}

}  // namespace
}  // namespace shale
