#include "server/prompt_length.h"

#include <gmock/gmock.h>

#include "core/utf8.h"
#include "support/byte_tokenizer.h"

namespace shale {
namespace {

// Counts what it is given.
class CountingTokenizer final : public testing::ByteTokenizer {
 public:
  std::vector<Token> tokenize(std::string_view text, bool special) const override {
    EXPECT_EQ(find_invalid_utf8(text), std::string_view::npos) << "a piece ends within a character";
    bytes += text.size();
    return ByteTokenizer::tokenize(text, special);
  }
  mutable std::size_t bytes = 0;
};

std::string repeated(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

std::optional<std::string> excess(const Tokenizer& tokenizer, std::string_view text, std::size_t context_tokens) {
  return excess_of(std::span(&text, 1), true, context_tokens, tokenizer);
}

TEST(PromptLength, TellsTooManyBytesWithoutTokenizing) {
  const CountingTokenizer tokenizer;
  EXPECT_EQ(excess(tokenizer, repeated("x", 800'001), 100'000), "800001 bytes");
  EXPECT_EQ(excess(tokenizer, repeated("x", 70'000), 1'000), "70000 bytes");
  EXPECT_EQ(tokenizer.bytes, 0u);
}

TEST(PromptLength, ReadsNothingWhereBytesAreFewEnough) {
  const CountingTokenizer tokenizer;
  EXPECT_EQ(excess(tokenizer, repeated("x", 99'999), 100'000), std::nullopt);
  EXPECT_EQ(tokenizer.bytes, 0u);
}

// They are tokenized whole anyway, and counted then.
TEST(PromptLength, ReadsNothingOfUsualPrompts) {
  const CountingTokenizer tokenizer;
  EXPECT_EQ(excess(tokenizer, repeated("x", 60'000), 50'000), std::nullopt);
  EXPECT_EQ(tokenizer.bytes, 0u);
}

TEST(PromptLength, ReadsNoMoreThanFillsTheContext) {
  const CountingTokenizer tokenizer;
  EXPECT_EQ(excess(tokenizer, repeated("x", 800'000), 100'000), "at least 100000 tokens");
  EXPECT_LT(tokenizer.bytes, 125'000u) << "a piece more, and what lies about seams twice";

  const std::string half = repeated("x", 60'000);
  const std::string_view texts[] = {half, half};
  EXPECT_EQ(excess_of(texts, true, 100'000, tokenizer), "at least 100000 tokens");
}

TEST(PromptLength, IsExactWhateverIsCut) {
  const CountingTokenizer tokenizer;
  for (const std::string_view unit : {"x<end>", "<turn>", "<end>ж<turn>€"}) {
    const std::string text = repeated(unit, 500'000 / unit.size());
    const std::size_t tokens = tokenizer.tokenize(text, true).size();
    EXPECT_EQ(excess(tokenizer, text, tokens + 1), std::nullopt) << unit;
    EXPECT_NE(excess(tokenizer, text, tokens), std::nullopt) << unit;
  }
}

}  // namespace
}  // namespace shale
