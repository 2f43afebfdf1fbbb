// What the engine gathers for scorers, keeps with entries, and ranks by.
#include <functional>

#include "engine/chunk.h"
#include "engine/engine_fixture.h"
#include "engine/repetition.h"
#include "model/capture.h"

namespace shale {
namespace {

using testing::random_tokens;

class ObservingTest : public testing::EngineTest {};

// Compressed at once, from the stored object and its observations after a restart, and from a fresh computation: the
// same tokens kept, so the same chunks.
TEST_F(ObservingTest, EveryScorerRanksAStoredEntryAsItDidAtOnce) {
  const std::vector<Token> document = random_tokens(300, 256, 3);
  std::vector<Method> methods;
  ScorerNeeds needs;
  for (const std::string_view name : scorer_names()) {
    const ScorerNeeds one = make_scorer(name).value()->needs();
    if (one.calibration) continue;
    methods.push_back(Method::parse(name).value());
    needs = needs | one;
    cache_options_.methods.emplace_back(name);
  }
  cache_options_.load_always = true;
  open();
  const auto compressed = [&](const Cache::NewEntry& entry, const Sequence& sequence) {
    std::vector<Hash128> objects;
    for (const Method& method : methods) {
      const auto object = cache_->compress(entry, method, sequence, model_->executor());
      EXPECT_TRUE(object) << method.text() << ": " << object.error().message;
      objects.push_back(object ? object->manifest->name() : Hash128());
    }
    return objects;
  };

  // What the engine itself captures, computing the document for a request.
  Request request = ask(3, 300, 1);
  ASSERT_FALSE(engine_->run(request).error);
  drain();
  Cache::NewEntry entry;
  entry.tokens = document;
  entry.observations = cache_->stored_observations(cache_->key_of({}, document));
  ASSERT_TRUE(entry.observations.consistent());
  needs.repeat_attention = false;
  EXPECT_EQ(cache_->missing(needs, 300, entry.observations), "");
  EXPECT_TRUE(entry.observations.repeat_attention.empty()) << "nobody asked for it";

  Sequence sequence(*pool_);
  Capture capture(model_->info(), 0, 300, needs);
  for (std::uint32_t done = 0; done < 300;) {
    const std::uint32_t count = next_chunk(300 - done, 128);
    ASSERT_TRUE(sequence.append(count));
    const StepSequence step{.sequence = &sequence,
                            .tokens = std::span(document).subspan(done, count),
                            .logits_none = true,
                            .capture = &capture};
    ASSERT_TRUE(model_->step({&step, 1}));
    done += count;
  }
  Cache::NewEntry fresh = entry;
  fresh.observations = capture.take();
  fresh.observations.merge(observe_repetition(*model_, tokenizer_, sequence, document, 128).value());
  const std::vector<Hash128> at_once = compressed(fresh, sequence);

  cache_->store(fresh, sequence);  // adds the repetition to what is stored
  drain();
  sequence.clear();
  open();
  Sequence loaded(*pool_);
  std::vector<Token> asked = document;
  asked.push_back(1);
  Retrieval retrieval = cache_->retrieve(asked, {.exact = true, .method = {}}, loaded);
  ASSERT_TRUE(retrieval.ensure_all(model_->executor()));
  ASSERT_EQ(loaded.length(), 300u);
  entry.observations = cache_->stored_observations(cache_->key_of({}, document));
  const std::vector<Hash128> stored = compressed(entry, loaded);
  for (std::size_t i = 0; i < methods.size(); ++i) EXPECT_EQ(stored[i], at_once[i]) << methods[i].text();
}

// Whatever the entry was computed for first: what the method lacks is computed, or asked of the model.
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
    request.demand = {.exact = false, .method = Method::parse(name).value(), .keep = 0.25};
    const Response answer = engine_->run(request);
    ASSERT_FALSE(answer.error) << name << ": " << answer.error->message;
    EXPECT_TRUE(answer.lossy) << name;
    drain();
    open();
    const Response loaded = engine_->run(request);
    EXPECT_EQ(loaded.cached.from("disk"), 200u) << name;
    EXPECT_EQ(loaded.tokens, answer.tokens) << name;
    // What was gathered for it is stored now: another keep that is not stored needs no computing.
    request.demand.keep = 0.75;
    EXPECT_EQ(engine_->run(request).cached.total(), 200u) << name;
    drain();
  }
}

TEST_F(ObservingTest, NothingIsGatheredThatNobodyReads) {
  ASSERT_FALSE(engine_->run(ask(30, 200, 1)).error);
  drain();
  const Observations seen = cache_->stored_observations(cache_->key_of({}, ask(30, 200, 1).segments[0].tokens));
  EXPECT_EQ(seen.window, 64u);
  EXPECT_TRUE(seen.attention_sums.empty() && seen.query_mean.empty() && seen.repeat_attention.empty());
}

TEST_F(ObservingTest, RefusesToRepeatWhereTheModelHasNoRoomAndSaysSo) {
  open(600);
  Request request = ask(31, 1900, 1);  // of 2048
  request.demand = {.exact = false, .method = Method::parse("kvzip").value(), .keep = 0.5};
  const Response answer = engine_->run(request);
  ASSERT_TRUE(answer.error);
  EXPECT_NE(answer.error->message.find("shorten them by"), std::string::npos) << answer.error->message;
}

}  // namespace
}  // namespace shale
