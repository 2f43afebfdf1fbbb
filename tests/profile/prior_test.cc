#include "profile/prior.h"

#include <gtest/gtest.h>

#include <set>

#include "profile/prior_texts.h"
#include "profile/quality_watch_fixture.h"
#include "support/engine_bench.h"
#include "support/model_runner.h"

namespace shale {
namespace {

using testing::kNever;

TEST(PriorTexts, AreOfTheKindsThatTheySay) {
  std::set<std::string_view> names;
  std::size_t of_kind[kContextKinds] = {};
  for (const PriorText& text : prior_texts()) {
    EXPECT_EQ(kind_of(text.text), text.kind) << text.name;
    EXPECT_TRUE(names.insert(text.name).second) << text.name;
    EXPECT_GT(text.text.size(), 900u) << text.name;
    ++of_kind[static_cast<std::size_t>(text.kind)];
  }
  for (const std::size_t count : of_kind) EXPECT_EQ(count, 2u);
}

TEST(Prior, MeasuresOnlyWhatTheMetadataStoreLacks) {
  testing::EngineBench bench;
  bench.open_tiny();
  const auto measure = [&](std::vector<std::string> methods) {
    PriorMeasurement prior(*bench.engine, {.methods = std::move(methods), .answer_tokens = 4});
    for (Result<bool> more = true; more && *more;) more = prior.step(kNever);
    return prior.measured();
  };
  EXPECT_EQ(measure({"int8"}), prior_texts().size());
  EXPECT_EQ(measure({"int8"}), 0u);
  const AskedContext text = prior_text(*bench.tokenizer, 0).value();
  const Hash128 run = bench.cache->run_of(text.tokens);
  const double before = bench.cache->metadata_store()->qualities(run)->front().quality;
  EXPECT_EQ(measure({"int8", "knorm"}), prior_texts().size());
  const auto rows = bench.cache->metadata_store()->qualities(run).value();
  EXPECT_EQ(rows.size(), 5u) << "int8, and knorm at four keeps";
  EXPECT_EQ(rows.front().quality, before);
  EXPECT_EQ(bench.cache->metadata_store()->kind(run).has_value(), true);
}

TEST(Prior, ATextThatDoesNotFitThePoolIsPassedOver) {
  testing::EngineBench bench;
  bench.open_tiny();
  testing::EngineBench small;
  small.open(bench.folder.path() / "tiny.gguf", std::make_unique<testing::ByteTokenizer>(), 1,
             20 * bench.model->page_shape().block_bytes());
  PriorMeasurement prior(*small.engine, {.methods = {"int8"}, .answer_tokens = 4});
  std::size_t failed = 0;
  for (Result<bool> more = true; !more || *more;) {
    more = prior.step(kNever);
    failed += !more;
    if (!more) prior.pass_over();
    ASSERT_LE(failed, prior_texts().size());
  }
  EXPECT_EQ(failed, prior_texts().size());
  EXPECT_EQ(prior.measured(), 0u);
}

// On a trained model the prior says what is known of such models: bits cost little, dropped tokens much.
TEST(PriorRealModel, OrdersConfigurations) {
  const auto path = testing::real_model("smollm2-135m");
  if (path.empty()) GTEST_SKIP() << "no smollm2-135m.gguf below SHALE_MODEL_DIR";
  testing::EngineBench bench;
  bench.open_real(path);
  PriorMeasurement prior(*bench.engine, {.methods = {"int8", "keydiff"}, .answer_tokens = 8});
  for (constexpr std::size_t kTexts = 4; prior.measured() < kTexts;) {  // each of another kind
    const auto stepped = prior.step(kNever);
    ASSERT_TRUE(stepped) << stepped.error().message;
    ASSERT_TRUE(*stepped);
  }
  const Hash128 unknown{1, 2};
  const auto expected = [&](const char* method, double keep) {
    return bench.cache->metadata_store()->quality_for(unknown, Method::parse(method).value(), keep)->expected;
  };
  EXPECT_GT(expected("int8", 1), 0.9);
  EXPECT_GT(expected("int8", 1), expected("keydiff", 0.25));
  EXPECT_GT(expected("keydiff", 0.75), expected("keydiff", 0.1));
}

}  // namespace
}  // namespace shale
