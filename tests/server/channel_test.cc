#include "server/channel.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace shale {
namespace {

using namespace std::chrono_literals;

TEST(ChannelTest, TokensComeWithTheirTextOrTheEnd) {
  Channel channel(1000);
  channel.begin({});
  ASSERT_TRUE(channel.next(0ms));
  channel.add(0, {.token = 1});
  EXPECT_FALSE(channel.next(0ms)) << "there is nothing to say yet";
  channel.add(0, {.token = 2});
  EXPECT_TRUE(channel.push(0, "text"));
  auto part = channel.next(0ms);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->text, "text");
  ASSERT_EQ(part->tokens.size(), 2u);
  EXPECT_EQ(part->tokens[1].token, 2);
  channel.add(0, {.token = 3});
  channel.finish(0, {});
  part = channel.next(0ms);
  ASSERT_TRUE(part && part->response);
  ASSERT_EQ(part->tokens.size(), 1u);
  EXPECT_EQ(part->tokens[0].token, 3);
}

TEST(ChannelTest, AReaderThatIsTooSlowForTokensIsLeft) {
  Channel channel(1000);
  channel.begin({});
  ASSERT_TRUE(channel.next(0ms));
  const Logprobs twenty{.drawn = 0, .top = std::vector<std::pair<Token, float>>(20)};
  channel.add(0, {.token = 1, .logprobs = twenty});
  EXPECT_TRUE(channel.push(0, "a"));
  ASSERT_TRUE(channel.next(0ms));
  int pieces = 0;
  do {
    channel.add(0, {.token = 1, .logprobs = twenty});
  } while (channel.push(0, "a") && ++pieces < 1000);
  EXPECT_LT(pieces, 10);
}

TEST(ChannelTest, TokensWithoutTextAreNoReadersFault) {
  Channel channel(1000);
  channel.begin({});
  ASSERT_TRUE(channel.next(0ms));
  for (int i = 0; i < 100; ++i) channel.add(0, {.token = 1});
  EXPECT_TRUE(channel.push(0, "a"));
  EXPECT_EQ(channel.next(0ms)->tokens.size(), 100u);
}

// Each has its own text and end; the first to have news is not told of before the others for ever.
TEST(ChannelTest, ChoicesTakeTurns) {
  Channel channel(1000, 3);
  channel.begin({});
  ASSERT_TRUE(channel.next(0ms));
  const auto told = [&] {
    const auto part = channel.next(0ms);
    return part ? std::pair(part->choice, part->text) : std::pair(std::size_t{9}, std::string());
  };
  using Told = std::pair<std::size_t, std::string>;
  EXPECT_TRUE(channel.push(0, "a") && channel.push(2, "c") && channel.push(0, "b"));
  EXPECT_EQ(told(), Told(0, "ab"));
  EXPECT_TRUE(channel.push(0, "d"));
  EXPECT_EQ(told(), Told(2, "c"));
  EXPECT_EQ(told(), Told(0, "d"));
  channel.finish(1, {});
  EXPECT_EQ(told(), Told(1, ""));
  EXPECT_FALSE(channel.next(0ms));
}

// What has ended meanwhile, too, because one was refused.
TEST(ChannelTest, ARefusalIsHeardOfFirst) {
  Channel channel(1000, 2);
  channel.finish(0, {});
  EXPECT_FALSE(channel.next(0ms)) << "whether they are taken is not known yet";
  channel.begin(fail(ErrorCode::kFull, "too long"));
  const auto part = channel.next(0ms);
  ASSERT_TRUE(part);
  EXPECT_TRUE(part->refused && !part->response);
}

TEST(ChannelTest, AReaderMayBeBehindWithEachChoice) {
  Channel channel(10, 2);
  channel.begin({});
  EXPECT_TRUE(channel.push(0, "12345678"));
  EXPECT_TRUE(channel.push(1, "12345678"));
  EXPECT_FALSE(channel.push(0, "12345678"));
}

}  // namespace
}  // namespace shale
