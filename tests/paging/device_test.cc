#include "paging/device.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "paging/page_pool.h"
#include "paging/queueing_device.h"

namespace shale {
namespace {

template <class AnyDevice>
class Devices : public ::testing::Test {
 protected:
  std::unique_ptr<DeviceMemory> memory_ = AnyDevice().allocate(64).value();

  void put(std::string_view text, std::size_t at) {
    memory_->copy_in(std::as_bytes(std::span(text)), at);
    memory_->fence();
  }
  std::string get(std::size_t at, std::size_t count) const {
    std::string text(count, '?');
    memory_->copy_out(at, std::as_writable_bytes(std::span(text)));
    memory_->fence();
    return text;
  }
};
using AllDevices = ::testing::Types<HostDevice, QueueingDevice>;
TYPED_TEST_SUITE(Devices, AllDevices);

TYPED_TEST(Devices, CopiesInAndOut) {
  EXPECT_EQ(this->memory_->bytes(), 64u);
  this->put("abcdef", 58);
  EXPECT_EQ(this->get(58, 6), "abcdef");
  EXPECT_EQ(this->get(60, 2), "cd");
}

TYPED_TEST(Devices, CopiesPiecesOneStrideApart) {
  this->put("ab..cd..ef......", 0);
  this->memory_->copy_within(0, 2, {.bytes = 2, .count = 3, .stride = 4});
  EXPECT_EQ(this->get(0, 16), "ababcdcdefef....");
  this->memory_->copy_within(0, 12, {.bytes = 2, .count = 0, .stride = 4});
  EXPECT_EQ(this->get(12, 4), "....");
}

TYPED_TEST(Devices, AnOverlappingPieceArrivesWhole) {
  this->put("abcdefgh", 0);
  this->memory_->copy_within(2, 0, {.bytes = 6});
  EXPECT_EQ(this->get(0, 8), "cdefghgh");
  this->memory_->copy_within(0, 1, {.bytes = 6});
  EXPECT_EQ(this->get(0, 8), "ccdefghh");
}

TYPED_TEST(Devices, CopiesHappenInOrder) {
  this->put("0123456789", 0);
  std::string seen(2, '?');
  this->memory_->copy_within(8, 0, {.bytes = 2});
  this->memory_->copy_out(0, std::as_writable_bytes(std::span(seen)));
  this->memory_->copy_within(4, 0, {.bytes = 2});
  this->memory_->fence();
  EXPECT_EQ(seen, "89");
  EXPECT_EQ(this->get(0, 3), "452");
}

TEST(HostDevice, IsSeenAsItIs) {
  const auto memory = HostDevice().allocate(4096).value();
  ASSERT_NE(memory->host_view(), nullptr);
  memory->host_view()[7] = std::byte{3};
  std::byte seen{};
  memory->copy_out(7, {&seen, 1});
  EXPECT_EQ(seen, std::byte{3});
  EXPECT_EQ(QueueingDevice().allocate(8).value()->host_view(), nullptr);
}

TEST(HostDevice, SaysThatThereIsNoRoom) {
  const auto memory = HostDevice().allocate(std::size_t{1} << 60);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, ErrorCode::kIo);
  EXPECT_TRUE(memory.error().message.contains("1152921504606846976 bytes of host memory")) << memory.error().message;
  const PageShape shape{.layers = 1, .kv_heads = 1, .head_dim = 1 << 20, .block_size = 64};
  EXPECT_EQ(PagePool::create(shape, std::size_t{1} << 55).error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace shale
