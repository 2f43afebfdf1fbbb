#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llama-cpp.h>

#include <random>

#include "model/special_texts.h"
#include "support/byte_vocabulary.h"
#include "support/gguf_writer.h"
#include "support/little_memory.h"
#include "support/model_runner.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

using ::testing::HasSubstr;
using testing::kTurnEnd;
using testing::kTurnStart;
using testing::LittleMemory;

const std::vector<std::string> kTexts = {"", "Hello, world!", "  two spaces,\ttab\n\nnewlines\r\n",
                                         "grüße 你好 🙂 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac",
                                         "int main() { return 0x7f; } // 12345"};

class TokenizerTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Tokenizer>> load(const std::function<void(gguf_context*)>& change = {}) {
    const auto path = folder_.path() / "tiny.gguf";
    testing::write_tiny_model({.layers = 1, .vocabulary = testing::kByteVocabulary}, path, [&](gguf_context* metadata) {
      testing::set_byte_vocabulary(metadata);
      if (change) change(metadata);
    });
    return Tokenizer::load(path);
  }
  testing::TemporaryFolder folder_;
};

TEST_F(TokenizerTest, GivesBackEveryText) {
  const auto tokenizer = load().value();
  for (const std::string& text : kTexts) EXPECT_EQ(tokenizer->text(tokenizer->tokenize(text, false)), text);
}

TEST_F(TokenizerTest, RecognisesControlTokensOnlyWhenAsked) {
  const auto tokenizer = load().value();
  EXPECT_EQ(tokenizer->tokenize("<|im_end|>", true), std::vector<Token>{kTurnEnd});
  EXPECT_EQ(tokenizer->tokenize("<|im_end|>", false).size(), 10);
  const std::vector<Token> tokens = {kTurnEnd, 'a'};
  EXPECT_EQ(tokenizer->text(tokens, false), "a");
  EXPECT_EQ(tokenizer->text(tokens, true), "<|im_end|>a");
}

// A part of a text is about a kilobyte, cut where it makes no difference; libllama sees each of these whole.
void expect_as_a_whole(const std::filesystem::path& path, const std::vector<std::string>& pieces) {
  const auto tokenizer = Tokenizer::load(path).value();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  const llama_model_ptr model(llama_model_load_from_file(path.c_str(), params));
  const llama_vocab* vocabulary = llama_model_get_vocab(model.get());
  std::mt19937 random(1);
  for (int round = 0; round < 8; ++round) {
    std::string text;
    while (text.size() < 25'000) text += pieces[random() % (round % 2 ? pieces.size() : 4)];
    for (const bool special : {true, false}) {
      std::vector<Token> whole(text.size() + 2);
      whole.resize(
          static_cast<std::size_t>(llama_tokenize(vocabulary, text.data(), static_cast<int>(text.size()), whole.data(),
                                                  static_cast<int>(whole.size()), false, special)));
      EXPECT_TRUE(tokenizer->tokenize(text, special) == whole) << round << special;
    }
  }
}

const std::vector<std::string> kPieces = {
    "<|im_end|>", "<|im_start|>",     " a b",          "<|pad|>x",    "<|im_", "end|>",        "\n\n",
    "   ",        "Layers of rock. ", "<|endoftext|>", "<repo_name>", "<",     "na\xc3\xafve "};

TEST_F(TokenizerTest, TokenizesLongTextsInPartsAsAWhole) {
  load();
  expect_as_a_whole(folder_.path() / "tiny.gguf", kPieces);
  load([](gguf_context* gguf) {  // libllama takes <|im_end|> for a control token all the same
    auto tokens = testing::byte_vocabulary();
    tokens.back() = "><";
    testing::set_byte_vocabulary(gguf, tokens);
    std::vector<std::int32_t> types(tokens.size(), 1);
    types[kTurnStart] = types[kTurnEnd] = 4;  // user-defined
    gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
    const char* merge = "> <";
    gguf_set_arr_str(gguf, "tokenizer.ggml.merges", &merge, 1);
  });
  expect_as_a_whole(folder_.path() / "tiny.gguf", kPieces);
  if (const char* folder = std::getenv("SHALE_MODEL_DIR")) {
    for (const char* name : {"smollm2-135m.gguf", "qwen2.5-coder-0.5b.gguf", "gemma3-270m.gguf"}) {
      const auto path = std::filesystem::path(folder) / name;
      if (std::filesystem::exists(path)) expect_as_a_whole(path, kPieces);
    }
  }
}

// libllama's regular expressions recurse for every character of one kind.
TEST_F(TokenizerTest, LongTextsOfOneKindOfCharacterAreTokenized) {
  const auto tokenizer = load().value();
  for (const char kind : {'a', '=', ' ', '1'}) {
    const std::string text(200'000, kind);
    EXPECT_EQ(tokenizer->text(tokenizer->tokenize(text, true), true), text) << kind;
  }
}

// Where there is no room for a stack as deep as a text is long, it is tokenized in pieces.
TEST_F(TokenizerTest, LongTextsAreTokenizedWithoutADeepStack) {
  const auto tokenizer = load().value();
  std::string text;
  while (text.size() < 400'000) text += "na\xc3\xafve words, ";
  const std::vector<Token> tokens = [&] {
    const LittleMemory little(std::size_t{128} << 20);
    return tokenizer->tokenize(text, false);
  }();
  EXPECT_EQ(tokenizer->text(tokens), text);
}

TEST(SpecialTexts, CutsWhereNothingOverlaps) {
  SpecialTexts texts;
  texts.add("<a>", true);
  texts.add("<a><b>", true);
  texts.add("<c>", false);
  texts.add("aaa", true);
  texts.add("", true);
  const auto npos = std::string_view::npos;
  EXPECT_EQ(texts.cut_after("x<a>y", 0), 4u);
  EXPECT_EQ(texts.cut_after("x<a>y", 2), npos);
  EXPECT_EQ(texts.cut_after("<a><b>y<a>", 0), 10u) << "a shorter one begins the longer";
  EXPECT_EQ(texts.cut_after("<c>x<a>", 0), 7u);
  EXPECT_EQ(texts.cut_after("aaaa", 0), npos) << "overlaps itself";
  EXPECT_EQ(texts.cut_after("baaab", 0), 4u);
  EXPECT_EQ(texts.cut_after("<a", 0), npos);
  EXPECT_EQ(texts.cut_after("", 0), npos);
  EXPECT_EQ(SpecialTexts().cut_after("<a>", 0), npos);
}

TEST_F(TokenizerTest, KnowsSpecialTokens) {
  const auto tokenizer = load().value();
  EXPECT_EQ(tokenizer->bos(), kTurnStart);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_TRUE(tokenizer->ends_turn(kTurnEnd));
  EXPECT_FALSE(tokenizer->ends_turn('a'));
  EXPECT_EQ(tokenizer->text(std::vector<Token>{-1, 100000, 'b'}), "b");
}

TEST_F(TokenizerTest, RendersTheFilesOwnTemplate) {
  const auto tokenizer = load().value();
  const Tokenizer::ChatMessage user{"user", "Hi {{ not a template }}"};
  EXPECT_EQ(tokenizer->render_chat({&user, 1}, true).value(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi {{ not a template }}<|im_end|>\n"
            "<|im_start|>assistant\n");
  const Tokenizer::ChatMessage chat[] = {{"system", "S"}, {"user", "U"}, {"assistant", "A"}};
  EXPECT_EQ(tokenizer->render_chat(chat, false).value(),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n");
}

TEST_F(TokenizerTest, ReportsTheTemplatesOwnErrors) {
  const auto tokenizer = load().value();
  const Tokenizer::ChatMessage tool{"tool", "42"};
  const auto rendered = tokenizer->render_chat({&tool, 1}, true);
  ASSERT_FALSE(rendered);
  EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(rendered.error().message, HasSubstr("no tools"));
}

TEST_F(TokenizerTest, WithoutATemplateSaysSo) {
  const auto tokenizer = load([](gguf_context* gguf) { gguf_remove_key(gguf, "tokenizer.chat_template"); }).value();
  EXPECT_EQ(tokenizer->render_chat({}, true).error().code, ErrorCode::kUnsupported);
}

TEST_F(TokenizerTest, RefusesDamagedVocabularies) {
  const auto error = [&](const std::function<void(gguf_context*)>& change) { return load(change).error().message; };
  EXPECT_THAT(error([](gguf_context* gguf) {
                auto tokens = testing::byte_vocabulary();
                tokens[3] = tokens[4];
                testing::set_byte_vocabulary(gguf, tokens);
              }),
              HasSubstr("twice"));
  EXPECT_THAT(error([](gguf_context* gguf) { gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", 260); }),
              HasSubstr("beyond the vocabulary"));
  EXPECT_THAT(error([](gguf_context* gguf) {
                const std::int32_t one = 1;
                gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, &one, 1);
              }),
              HasSubstr("token_type has 1 entries"));
  EXPECT_THAT(error([](gguf_context* gguf) {
                const std::vector<std::uint8_t> types(testing::kByteVocabulary, 1);
                gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_UINT8, types.data(), types.size());
              }),
              HasSubstr("token_type is not an array of 32-bit integers"));
  EXPECT_THAT(error([](gguf_context* gguf) {
                std::vector<const char*> scores(testing::kByteVocabulary, "1");
                gguf_set_arr_str(gguf, "tokenizer.ggml.scores", scores.data(), scores.size());
              }),
              HasSubstr("scores is not an array of 32-bit floats"));
  EXPECT_THAT(error([](gguf_context* gguf) { gguf_set_val_str(gguf, "tokenizer.ggml.tokens", "all"); }),
              HasSubstr("not an array of strings"));
  EXPECT_THAT(error([](gguf_context* gguf) { gguf_set_val_str(gguf, "tokenizer.ggml.model", "rwkv"); }),
              HasSubstr("rwkv"));
  EXPECT_THAT(error([](gguf_context* gguf) { gguf_set_val_str(gguf, "tokenizer.ggml.pre", "whitespace"); }),
              HasSubstr("white space"));
  EXPECT_THAT(error([](gguf_context* gguf) {
                const std::vector<std::int32_t> types(testing::kByteVocabulary, 6);
                gguf_set_val_str(gguf, "tokenizer.ggml.model", "bert");
                gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
              }),
              HasSubstr("tokens for bytes"));
  EXPECT_THAT(error([](gguf_context* gguf) { gguf_set_val_str(gguf, "tokenizer.ggml.model", "llama"); }),
              HasSubstr("without <0x00>"));
  EXPECT_THAT(error([](gguf_context* gguf) { gguf_set_val_str(gguf, "tokenizer.chat_template", "{% if %}"); }),
              HasSubstr("chat template does not parse"));
}

TEST_F(TokenizerTest, SentencePieceSpellsByBytesWhatIsNoToken) {
  const auto tokenizer =
      load([](gguf_context* gguf) {
        auto tokens = testing::byte_vocabulary();
        for (int byte = 0; byte < 256; ++byte) tokens[byte] = fmt::format("<0x{:02X}>", byte);
        testing::set_byte_vocabulary(gguf, tokens);
        std::vector<std::int32_t> types(tokens.size(), 6);  // bytes
        for (std::size_t i = 256; i < types.size(); ++i) types[i] = 3;
        gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
        gguf_set_val_str(gguf, "tokenizer.ggml.model", "llama");
        gguf_set_val_bool(gguf, "tokenizer.ggml.add_space_prefix", false);
      }).value();
  EXPECT_EQ(tokenizer->text(tokenizer->tokenize("abc🙂", false)), "abc🙂");
}

TEST(RealTokenizerTest, RoundTripsAndRendersSystemDefaults) {
  const std::pair<const char*, const char*> models[] = {
      {"smollm2-135m", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
      {"qwen2.5-coder-0.5b", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."}};
  for (const auto& [name, system] : models) {
    const auto path = testing::real_model(name);
    if (path.empty()) GTEST_SKIP() << "no " << name << ".gguf below SHALE_MODEL_DIR";
    const auto tokenizer = Tokenizer::load(path).value();
    for (const std::string& text : kTexts) EXPECT_EQ(tokenizer->text(tokenizer->tokenize(text, false)), text);
    const Tokenizer::ChatMessage user{"user", "Why?"};
    EXPECT_EQ(tokenizer->render_chat({&user, 1}, true).value(),
              std::string("<|im_start|>system\n") + system +
                  "<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n");
  }
}

}  // namespace
}  // namespace shale
