// Why scores that may drop the first tokens do badly: on a real model, which leans on them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "codec/tier_cut.h"
#include "profile/context_scores.h"
#include "profile/prompt.h"
#include "profile/teacher.h"
#include "support/engine_bench.h"
#include "support/model_runner.h"

namespace shale {
namespace {

constexpr std::uint32_t kSinks = 4;

class FirstTokens : public ::testing::Test {
 protected:
  void open(const std::string& name, const ScorerNeeds& needs) {
    const auto path = testing::real_model(name);
    if (path.empty()) GTEST_SKIP() << name << " is not below SHALE_MODEL_DIR";
    bench_.open(path, Tokenizer::load(path).value(), 1, std::size_t{512} << 20);
    std::string text;
    for (int i = 1; i <= 4; ++i) {
      text += fmt::format(
          "Day {}. We left camp {} at dawn and walked {} miles along the river. {} of us were ill; the guide found "
          "water under a {} rock and we ate what was left of the bread. ",
          i, i * 7 % 5 + 1, i * 3 + 4, i % 4 + 1, i % 2 ? "red" : "black");
    }
    const std::vector<std::string> questions = {"How far did they walk on day three?", "What did they eat?"};
    AskedContext asked = ask(*bench_.tokenizer, text, questions).value();
    ASSERT_TRUE(keep_whole_blocks(asked, bench_.cache->block_tokens()));
    tokens_ = std::move(asked.tokens);
    questions_ = std::move(asked.questions);
    exact_.emplace(exact_context(*bench_.engine, tokens_, needs, {"test"}).value());
    references_ = answer_questions(*bench_.model, *bench_.tokenizer, exact_->sequence, questions_, 12).value();
  }

  std::size_t heads() const { return bench_.model->page_shape().pages_per_block(); }
  std::vector<float> scores(std::string_view scorer, std::uint32_t sinks) {
    std::vector<float> all = score_context(*bench_.engine, *exact_, scorer, {}).value();
    for (std::size_t first = 0; first < all.size(); first += tokens_.size()) {
      std::fill_n(&all[first], sinks, std::numeric_limits<float>::max());
    }
    return all;
  }
  // How far the answers' distributions move with three quarters of the tokens.
  double kl(std::span<const float> scores) {
    const PageShape& shape = bench_.pool->shape();
    const auto tokens = static_cast<std::uint32_t>(tokens_.size());
    TierMap tiers = cut_tiers(*make_budget("uniform").value(), {shape.layers, shape.kv_heads, tokens, scores},
                              ScorerOptions().window, shape, ranked_layers(shape.layers, {}));
    auto compressor = RunCompressor::start(bench_.cache->codec(), exact_->sequence, 0, tokens,
                                           {.scorer = "vk_ratio", .quantizer = "none"}, std::move(tiers))
                          .value();
    EXPECT_TRUE(step_through(compressor, bench_.model->executor(), {}));
    Sequence copy(*bench_.pool);
    EXPECT_TRUE(bench_.cache->decompress(compressor.finish(), 0.75, copy, bench_.model->executor()));
    std::vector<Divergence> results(references_.size());
    ForcedBatch batch(*bench_.model, references_);
    batch.add(copy, results);
    EXPECT_TRUE(batch.run());
    return std::transform_reduce(results.begin(), results.end(), 0.0, std::plus<>(),
                                 [](const Divergence& one) { return one.kl; }) /
           static_cast<double>(results.size());
  }

  testing::EngineBench bench_;
  std::vector<Token> tokens_;
  std::vector<std::vector<Token>> questions_;
  std::vector<Reference> references_;
  std::optional<ExactContext> exact_;
};

TEST_F(FirstTokens, AreWhatVkRatioLacksOnSmolLm2) {
  open("smollm2-135m", {.attention_sums = true});
  if (IsSkipped()) return;
  const std::vector<float>& sums = exact_->run.statistics.attention_sums;
  double first = 0;
  for (std::size_t at = 0; at < sums.size(); at += tokens_.size()) {
    first = std::accumulate(&sums[at], &sums[at + kSinks], first);
  }
  const double share = first / std::accumulate(sums.begin(), sums.end(), 0.0);
  const std::vector<float> ranked = scores("vk_ratio", 0);
  std::size_t dropped = 0;
  for (std::size_t head = 0; head < heads(); ++head) {
    const auto order = ranking(std::span(ranked).subspan(head * tokens_.size(), tokens_.size()));
    const auto rank = static_cast<std::size_t>(std::ranges::find(order, 0u) - order.begin());
    dropped += rank >= kept_tokens(static_cast<std::uint32_t>(tokens_.size()), 0.75);
  }
  const double alone = kl(ranked), with_sinks = kl(scores("vk_ratio", kSinks));
  const double random = kl(scores("random", 0));
  fmt::print(
      "the first {} of {} tokens receive {:.2f} of all attention; vk_ratio drops the first in {} of {} heads\n"
      "KL at keep 0.75: vk_ratio {:.3f}, with them {:.3f}; random {:.3f}\n",
      kSinks, tokens_.size(), share, dropped, heads(), alone, with_sinks, random);
  EXPECT_GT(share, 0.2);
  EXPECT_GT(dropped, heads() / 3);
  EXPECT_LT(with_sinks, alone / 2);
  EXPECT_LT(random, alone);
}

}  // namespace
}  // namespace shale
