// Whoever demands exact KV gets what computing the prompt gives, bit for bit, whatever was cached by whom.
#include "engine/engine_fixture.h"
#include "model/weights/weight_record.h"

namespace shale {
namespace {

using testing::EngineTest;
using testing::random_tokens;

// Over a model that computes single tokens in other weights than prompts.
class ReproducibleEngineTest : public EngineTest {
 protected:
  ReproducibleEngineTest() {
    engine_.reset();
    cache_.reset();
    const WeightRecord record{{RunType::kBf16, 2}, {RunType::kFile, 1}, 8};
    WeightRecordFile(folder_.path() / "choices", model_->info().checkpoint, 1).write(record);
    model_ = Model::load(path_, {.choices_folder = folder_.path() / "choices", .threads = 1}).value();
    EXPECT_TRUE(model_->has_quick());
    EXPECT_TRUE(model_->info().reproducible);
    open();
  }

  // All that its first whole pages hold.
  static std::vector<std::byte> bytes_of(const Sequence& sequence, std::uint32_t tokens) {
    const PageShape& shape = sequence.pool().shape();
    std::vector<std::byte> bytes;
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        const PageSlots pages = sequence.table(layer, head).pages;
        for (std::uint32_t p = 0; p < tokens / shape.block_size; ++p) {
          const auto page = sequence.pool().host_view().bytes(pages[p].page);
          bytes.insert(bytes.end(), page.begin(), page.end());
        }
      }
    }
    return bytes;
  }

  // What the cache has of the chain; and whether all of that is what computing it gives.
  std::uint32_t found(const std::vector<Token>& chain, bool exact, bool as_computed) {
    std::vector<Token> asked = chain;
    asked.push_back(0);  // the last one is never looked for
    Sequence cached(*pool_), computed(*pool_);
    Retrieval retrieval = cache_->retrieve(asked, {.exact = exact, .method = {}}, cached);
    EXPECT_TRUE(retrieval.ensure_all(model_->executor()));
    const std::uint32_t tokens = retrieval.tokens();
    computed.append(tokens).value();
    const StepSequence step{.sequence = &computed, .tokens = std::span(chain).first(tokens), .logits_none = true};
    EXPECT_TRUE(model_->step({&step, 1}));
    EXPECT_EQ(bytes_of(cached, tokens) == bytes_of(computed, tokens), as_computed);
    return tokens;
  }

  static std::vector<Token> chain_of(const Request& request, const Response& answer) {
    std::vector<Token> chain;
    for (const PrefixSpan& span : request.spans) chain.insert(chain.end(), span.tokens.begin(), span.tokens.end());
    chain.insert(chain.end(), answer.tokens.begin(), answer.tokens.end() - 1);
    return chain;
  }

  Request turn(bool exact) {
    Request request = ask(5, 64, 1);
    request.spans.back().store = false;
    request.store_answer = true;
    request.max_tokens = 60;
    request.ignore_end = true;
    request.policy.exact = exact;
    return request;
  }
};

TEST_F(ReproducibleEngineTest, AnswersComputedInOtherWeightsServeThoseWhoDoNotMind) {
  const Request request = turn(false);
  const auto chain = chain_of(request, engine_->run(request));
  ASSERT_EQ(chain.size(), 64u + 9 + 59);
  EXPECT_EQ(found(chain, false, false), chain.size());
  EXPECT_EQ(found(chain, true, true), 73u) << "the prompt";
  drain();
  open();
  EXPECT_EQ(found(chain, false, false), chain.size() / 16 * 16) << "from disk";
  EXPECT_EQ(found(chain, true, true), 64u);

  // Once somebody has demanded it, all of it is there for both.
  Request again;
  again.spans.push_back({.tokens = chain, .store = true, .label = ""});
  again.spans.push_back({.tokens = random_tokens(6, 256, 77), .store = false, .label = ""});
  again.policy.exact = true;
  EXPECT_EQ(engine_->run(again).cached.total(), 64u);
  EXPECT_EQ(found(chain, true, true), chain.size());
  EXPECT_EQ(found(chain, false, true), chain.size());
  drain();
  open();
  EXPECT_EQ(found(chain, true, true), chain.size() / 16 * 16);
}

// The tokens of an exact answer are an answer's, not a prompt's: the same every time, in weights of their own.
TEST_F(ReproducibleEngineTest, AnExactAnswerIsNoPromptsPrefix) {
  const Request request = turn(true);
  const Response first = engine_->run(request);
  const auto chain = chain_of(request, first);
  EXPECT_EQ(found(chain, true, true), 73u);
  EXPECT_EQ(found(chain, false, false), chain.size());
  drain();
  open();
  EXPECT_EQ(found(chain, true, true), 64u);
  EXPECT_EQ(engine_->run(request).tokens, first.tokens);
}

// The tokens of an answer that was preempted are computed again as an answer's.
TEST_F(ReproducibleEngineTest, AnExactAnswerGoesOnAsItBegan) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 3; ++i) {
    requests.push_back(generate(i, 100, 150));
    requests.back().policy.exact = true;
  }
  std::vector<std::vector<Token>> alone;
  for (const Request& request : requests) alone.push_back(engine_->run(request).tokens);
  tier_bytes_ = 4096;  // nothing can be spilled
  open(28);
  std::map<RequestId, std::size_t> ids;
  for (std::size_t i = 0; i < requests.size(); ++i) ids[engine_->submit(requests[i]).value()] = i;
  while (engine_->run_once()) {
  }
  EXPECT_GT(engine_->stats().computed_again, 0u);
  for (const Response& response : engine_->finished()) EXPECT_EQ(response.tokens, alone[ids.at(response.id)]);
}

// What is computed on top of an answer in other weights is not exact either.
TEST_F(ReproducibleEngineTest, TheNextTurnIsNoMoreExactThanTheLast) {
  const Request request = turn(false);
  std::vector<Token> chain = chain_of(request, engine_->run(request));
  Request next;
  next.spans.push_back({.tokens = chain, .store = true, .label = ""});
  const auto question = random_tokens(40, 256, 78);
  next.spans.push_back({.tokens = question, .store = true, .label = ""});
  EXPECT_EQ(engine_->run(next).cached.total(), chain.size());
  chain.insert(chain.end(), question.begin(), question.end());
  EXPECT_EQ(found(chain, true, true), 73u);
  drain();
  open();
  EXPECT_EQ(found(chain, true, true), 64u);
  EXPECT_GT(found(chain, false, false), 150u);
}

// Two ask at once about the same text behind an answer in other weights: the second takes from the pool what the first
// has just computed, unless it demands exact KV.
TEST_F(ReproducibleEngineTest, WhoSharesWhatIsBeingComputedKnowsWhatItIs) {
  for (const bool exact : {false, true}) {
    Request request = turn(false);
    request.spans[0].tokens[0] += exact;  // nothing of it is known
    std::vector<Token> chain = chain_of(request, engine_->run(request));
    const auto notes = random_tokens(92, 256, 78);
    chain.insert(chain.end(), notes.begin(), notes.end());
    ASSERT_EQ(chain.size(), 14u * 16);
    std::vector<Request> requests(2);
    std::vector<RequestId> ids;
    for (std::uint32_t i = 0; i < 2; ++i) {
      requests[i].spans.push_back({.tokens = chain, .store = true, .label = "notes"});
      requests[i].spans.push_back({.tokens = random_tokens(9, 256, 90 + i), .store = false, .label = ""});
      requests[i].max_tokens = 12;
      requests[i].policy.exact = exact && i == 1;
      ids.push_back(engine_->submit(requests[i]).value());
    }
    while (engine_->run_once()) {
    }
    for (const Response& response : engine_->finished()) {
      ASSERT_FALSE(response.error) << response.error->message;
      if (response.id == ids[0]) continue;
      EXPECT_EQ(response.cached.from("pool"), exact ? 73 : chain.size()) << "all but its question";
      if (!exact) continue;
      Request cold = requests[1];
      cold.use_cache = false;
      EXPECT_EQ(response.tokens, engine_->run(cold).tokens);
    }
    EXPECT_EQ(found(chain, true, true), exact ? chain.size() : 73);
    EXPECT_EQ(found(chain, false, exact), chain.size());
    drain();
    open();
    EXPECT_EQ(found(chain, true, true), exact ? chain.size() : 64);
  }
}

TEST_F(ReproducibleEngineTest, ExactAnswersAreTheSameBesideOthers) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 4; ++i) {
    Request request = ask(20 + i, 40 + 61 * i, i);
    request.max_tokens = 40;
    request.ignore_end = true;
    request.policy.exact = i != 3;
    requests.push_back(std::move(request));
  }
  std::map<RequestId, std::vector<Token>> together;
  std::vector<RequestId> ids;
  for (const Request& request : requests) ids.push_back(engine_->submit(request).value());
  while (engine_->run_once()) {
  }
  for (Response& response : engine_->finished()) together[response.id] = response.tokens;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(engine_->run(requests[i]).tokens, together.at(ids[i])) << "from the pool";
    Request cold = requests[i];
    cold.use_cache = false;
    EXPECT_EQ(engine_->run(cold).tokens, together.at(ids[i])) << "alone, with nothing cached";
  }
  drain();
}

}  // namespace
}  // namespace shale
