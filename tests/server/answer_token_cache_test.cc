#include "server/answer_token_cache.h"

#include <gmock/gmock.h>

namespace shale {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Token> recalled(const AnswerTokenCache& cache, std::string role, std::string text) {
  std::vector<ChatMessage> messages = {{std::move(role), std::move(text)}};
  cache.recall(messages);
  return messages[0].tokens;
}

TEST(AnswerTokenCache, GiveAnswersTheirTokensAndNobodyElse) {
  AnswerTokenCache cache(100);
  cache.add({"assistant", "A rock.", {1, 2}, true});
  EXPECT_THAT(recalled(cache, "assistant", "A rock."), ElementsAre(1, 2));
  EXPECT_THAT(recalled(cache, "user", "A rock."), IsEmpty());
  EXPECT_THAT(recalled(cache, "assistant", "A stone."), IsEmpty());
  std::vector<ChatMessage> salted = {{"assistant", "A rock.", {}, false}};
  cache.recall(salted, "salt");
  EXPECT_THAT(salted[0].tokens, IsEmpty()) << "another salt's";
  cache.add({"assistant", "A rock.", {3}, false});
  EXPECT_THAT(recalled(cache, "assistant", "A rock."), ElementsAre(3));
}

TEST(AnswerTokenCache, ForgetTheOldest) {
  AnswerTokenCache cache(12);  // with two bytes for each
  cache.add({"assistant", "aaaa", {1}});
  cache.add({"assistant", "bbbb", {2}});
  cache.add({"assistant", "cccc", {3}});
  EXPECT_THAT(recalled(cache, "assistant", "aaaa"), IsEmpty());
  EXPECT_THAT(recalled(cache, "assistant", "bbbb"), ElementsAre(2));
  cache.add({"assistant", "bbbb", {4}});
  EXPECT_THAT(recalled(cache, "assistant", "cccc"), ElementsAre(3));
  cache.add({"assistant", std::string(11, 'd'), {5}});
  EXPECT_THAT(recalled(cache, "assistant", "cccc"), IsEmpty());
}

}  // namespace
}  // namespace shale
