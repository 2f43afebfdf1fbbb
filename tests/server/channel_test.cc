#include "server/channel.h"

#include <gtest/gtest.h>

namespace shale {
namespace {

using namespace std::chrono_literals;

TEST(ChannelTest, TokensComeWithTheirTextOrTheEnd) {
  Channel channel(1000);
  channel.begin({});
  ASSERT_TRUE(channel.next(0ms));
  channel.add({.token = 1});
  EXPECT_FALSE(channel.next(0ms)) << "there is nothing to say yet";
  channel.add({.token = 2});
  EXPECT_TRUE(channel.push("text"));
  auto part = channel.next(0ms);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->text, "text");
  ASSERT_EQ(part->tokens.size(), 2u);
  EXPECT_EQ(part->tokens[1].token, 2);
  channel.add({.token = 3});
  channel.finish({});
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
  channel.add({.token = 1, .logprobs = twenty});
  EXPECT_TRUE(channel.push("a"));
  ASSERT_TRUE(channel.next(0ms));
  int pieces = 0;
  do {
    channel.add({.token = 1, .logprobs = twenty});
  } while (channel.push("a") && ++pieces < 1000);
  EXPECT_LT(pieces, 10);
}

TEST(ChannelTest, TokensWithoutTextAreNoReadersFault) {
  Channel channel(1000);
  channel.begin({});
  ASSERT_TRUE(channel.next(0ms));
  for (int i = 0; i < 100; ++i) channel.add({.token = 1});
  EXPECT_TRUE(channel.push("a"));
  EXPECT_EQ(channel.next(0ms)->tokens.size(), 100u);
}

}  // namespace
}  // namespace shale
