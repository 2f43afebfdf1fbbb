#include "model/sentence_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "support/model_runner.h"
#include "support/temporary_folder.h"

namespace shale {
namespace {

// The numbers that the model's own page on its public hub shows for these sentences.
TEST(SentenceEncoderTest, SaysHowAlikeSentencesAre) {
  const auto path = testing::real_model("all-minilm-l6-v2");
  if (path.empty()) GTEST_SKIP() << "all-minilm-l6-v2 is not here; shale model fetch all-minilm-l6-v2";
  const auto encoder = SentenceEncoder::load(path, 1).value();
  const auto source = encoder->encode("That is a happy person").value();
  EXPECT_NEAR(cosine(source, source), 1, 1e-5);
  EXPECT_NEAR(cosine(source, encoder->encode("That is a happy dog").value()), 0.695, 0.002);
  EXPECT_NEAR(cosine(source, encoder->encode("That is a very happy person").value()), 0.943, 0.002);
  EXPECT_NEAR(cosine(source, encoder->encode("Today is a sunny day").value()), 0.257, 0.002);
}

TEST(SentenceEncoderTest, LongAndEmptyTextsAreDefined) {
  const auto path = testing::real_model("all-minilm-l6-v2");
  if (path.empty()) GTEST_SKIP() << "all-minilm-l6-v2 is not here; shale model fetch all-minilm-l6-v2";
  const auto encoder = SentenceEncoder::load(path, 1).value();
  EXPECT_TRUE(encoder->encode(""));
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "word ";
  EXPECT_TRUE(encoder->encode(text));
}

TEST(SentenceEncoderTest, AFileThatIsNoneIsRefused) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "broken.gguf";
  std::ofstream(path) << "GGUF nonsense";
  EXPECT_FALSE(SentenceEncoder::load(path, 1));
}

}  // namespace
}  // namespace shale
