#include "server/answer_token_cache.h"

#include <gmock/gmock.h>

namespace shale {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Token> recalled(const AnswerTokenCache& said, std::string role, std::string text) {
  std::vector<ChatMessage> messages = {{std::move(role), std::move(text)}};
  said.recall(messages);
  return messages[0].tokens;
}

TEST(AnswerTokenCache, GiveAnswersTheirTokensAndNobodyElse) {
  AnswerTokenCache said(100);
  said.add({"assistant", "A rock.", {1, 2}, true});
  EXPECT_THAT(recalled(said, "assistant", "A rock."), ElementsAre(1, 2));
  EXPECT_THAT(recalled(said, "user", "A rock."), IsEmpty());
  EXPECT_THAT(recalled(said, "assistant", "A stone."), IsEmpty());
  std::vector<ChatMessage> salted = {{"assistant", "A rock.", {}, false}};
  said.recall(salted, "salt");
  EXPECT_THAT(salted[0].tokens, IsEmpty()) << "another salt's";
  said.add({"assistant", "A rock.", {3}, false});
  EXPECT_THAT(recalled(said, "assistant", "A rock."), ElementsAre(3));
}

TEST(AnswerTokenCache, ForgetTheOldest) {
  AnswerTokenCache said(12);  // with two bytes for each
  said.add({"assistant", "aaaa", {1}});
  said.add({"assistant", "bbbb", {2}});
  said.add({"assistant", "cccc", {3}});
  EXPECT_THAT(recalled(said, "assistant", "aaaa"), IsEmpty());
  EXPECT_THAT(recalled(said, "assistant", "bbbb"), ElementsAre(2));
  said.add({"assistant", "bbbb", {4}});
  EXPECT_THAT(recalled(said, "assistant", "cccc"), ElementsAre(3));
  said.add({"assistant", std::string(11, 'd'), {5}});
  EXPECT_THAT(recalled(said, "assistant", "cccc"), IsEmpty());
}

}  // namespace
}  // namespace shale
