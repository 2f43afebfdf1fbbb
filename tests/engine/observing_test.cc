// What the engine gathers for scorers.
#include <functional>

#include "engine/engine_fixture.h"

namespace shale {
namespace {

class ObservingTest : public testing::EngineTest {};

// Whatever the context was computed for first: what the method lacks is computed, or asked of the model.
TEST_F(ObservingTest, EveryScorerMayBeNamedForAContextThatIsStored) {
  cache_options_.load_always = true;
  open();
  for (const std::string_view name : scorer_names()) {
    if (make_scorer(name).value()->needs().calibration) continue;
    const auto document = static_cast<std::uint32_t>(std::hash<std::string_view>()(name) % 1000);
    ASSERT_FALSE(engine_->run(ask(document, 200, 1)).error);
    drain();
    open();
    Request request = ask(document, 200, 1);
    request.policy = {.exact = false, .method = Method::parse(name).value(), .keep = 0.25};
    const Response answer = engine_->run(request);
    ASSERT_FALSE(answer.error) << name << ": " << answer.error->message;
    EXPECT_TRUE(answer.lossy) << name;
    drain();
    open();
    const Response loaded = engine_->run(request);
    EXPECT_EQ(loaded.cached.from("disk"), 192u) << name;
    EXPECT_EQ(loaded.tokens, answer.tokens) << name;
    drain();
  }
}

// Also what is known only of a whole run, or once the model has repeated it.
TEST_F(ObservingTest, EveryScorerAndBudgetMayBeThatOfAllThatIsStored) {
  cache_options_.load_always = true;
  std::vector<std::string> methods = {"global:kvzip", "adakv:snapkv", "pyramid:h2o+int8", "global:expected_attention"};
  for (const std::string_view name : scorer_names()) {
    if (!make_scorer(name).value()->needs().calibration) methods.emplace_back(name);
  }
  for (const std::string& method : methods) {
    const auto document = static_cast<std::uint32_t>(std::hash<std::string>()(method) % 1000);
    cache_options_.planner = "fixed:" + method + "@0.25";
    open();
    ASSERT_FALSE(engine_->run(ask(document, 200, 1)).error);
    drain();
    open();
    const Response loaded = engine_->run(ask(document, 200, 2));
    ASSERT_FALSE(loaded.error);
    EXPECT_EQ(loaded.cached.from("disk"), 192u) << method;
    ASSERT_EQ(loaded.sources.size(), 1u) << method;
    EXPECT_EQ(loaded.sources[0].method.text(), method);
    EXPECT_EQ(loaded.sources[0].keep, 0.25);
    drain();
  }
}

TEST_F(ObservingTest, RefusesToRepeatWhereTheModelHasNoRoomAndSaysSo) {
  open(600);
  Request request = ask(31, 1900, 1);  // of 2048
  request.policy = {.exact = false, .method = Method::parse("kvzip").value(), .keep = 0.5};
  const Response answer = engine_->run(request);
  ASSERT_TRUE(answer.error);
  EXPECT_NE(answer.error->message.find("shorten them by"), std::string::npos) << answer.error->message;
}

}  // namespace
}  // namespace shale
