#include "extents/event_queue.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

using Kind = StoreEvent::Kind;

StoreEvent event_of(std::size_t blocks, std::uint32_t first_block) {
  StoreEvent event;
  event.first_block = first_block;
  event.keys.resize(blocks);
  return event;
}

TEST(EventQueueTest, KeepsTheNewestAndTellsThatOthersWereDropped) {
  EventQueue queue(2);
  for (std::uint32_t i = 0; i < 3; ++i) queue.push(event_of(1, i));
  EXPECT_EQ(queue.lost(), 1u);
  const auto taken = queue.take(10);
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken[0].kind, Kind::kLost);
  EXPECT_EQ(taken[1].first_block, 1u);
  EXPECT_EQ(taken[2].first_block, 2u);
  queue.push(event_of(1, 3));
  EXPECT_EQ(queue.take(10).size(), 1u) << "told once";
}

TEST(EventQueueTest, LongContextsTakeNoMoreMemoryThanShortOnes) {
  constexpr std::size_t kBlocks = 4096;
  constexpr std::uint32_t kEvents = 1000;
  EventQueue queue(kEvents);
  for (std::uint32_t i = 0; i < kEvents; ++i) queue.push(event_of(kBlocks, i));
  const auto taken = queue.take(kEvents);
  EXPECT_EQ(queue.lost() + taken.size() - 1, kEvents);
  EXPECT_LE((taken.size() - 1) * kBlocks * sizeof(BlockKey), EventQueue::kBytesMax);
  EXPECT_EQ(taken.back().first_block, kEvents - 1);
  queue.push(event_of(EventQueue::kBytesMax / sizeof(BlockKey), 0));
  EXPECT_EQ(queue.take(1).size(), 1u) << "the newest is kept, however long";
}

}  // namespace
}  // namespace shale
