// Requests that stay inside a budget of pages.
#include <algorithm>
#include <vector>

#include "engine/kv_budget_fixture.h"

namespace shale {
namespace {

using testing::EngineTest;
using testing::kBudgetMethods;
using testing::KvBudgetTest;

// Without a prefix cache, and with one that has filled the pool, as a server's has after a while.
class KvBudgetMemoryTest : public KvBudgetTest, public ::testing::WithParamInterface<bool> {
 protected:
  Request generate(std::size_t prompt, std::uint32_t tokens, std::optional<KvBudgetOptions> budget) {
    Request request = EngineTest::generate(seed_, prompt, tokens, GetParam());
    request.budget = std::move(budget);
    return request;
  }

  // Prompts are others' from now on.
  void begin() {
    ++seed_;
    if (!GetParam()) return;
    if (pool_->blocks_total() != 40) open(40);
    for (std::uint32_t other = 1000; pool_->blocks_free() > 1; ++other) {
      ASSERT_FALSE(engine_->run(EngineTest::generate(100 * seed_ + other, 100, 1, true)).error);
    }
  }

 private:
  std::uint32_t seed_ = 77;
};
INSTANTIATE_TEST_SUITE_P(PrefixCache, KvBudgetMemoryTest, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "on" : "off"; });

TEST_P(KvBudgetMemoryTest, ABudgetNeverReachedChangesNothing) {
  begin();
  const Response full = engine_->run(generate(100, 20, std::nullopt));
  for (const char* method : kBudgetMethods) {
    const Response same = engine_->run(generate(100, 20, KvBudgetOptions{.tokens = 160, .method = method}));
    ASSERT_FALSE(same.error) << method << ": " << same.error->message;
    EXPECT_EQ(same.tokens, full.tokens) << method;
    EXPECT_FALSE(same.lossy) << method;
  }
  expect_all_back("at the end");
}

// Eight times the budget is generated: pages in use stay flat, and all of them come back.
TEST_P(KvBudgetMemoryTest, PagesStayFlatAndComeBack) {
  for (const char* method : kBudgetMethods) {
    begin();
    KvBudgetOptions budget{.tokens = 48, .method = method};
    budget.interval = 32;
    const Use use = run({generate(200, 384, budget)});
    const Response& response = use.responses[0];
    ASSERT_FALSE(response.error) << method << ": " << response.error->message;
    EXPECT_EQ(response.tokens.size(), 384u) << method;
    EXPECT_TRUE(response.lossy) << method;
    EXPECT_GT(response.budget.paging.tokens_dropped, 0u) << method;
    EXPECT_LE(use.most, 14u) << method;  // 200 tokens in pages of 16, and the first decoded
    // The budget, an interval, an open page a head; a head may keep more than its share where the budget varies.
    EXPECT_LE(use.most_decoding, (48u + 32u) / 16 + 2) << method;
    expect_all_back(method);
  }
}

// What is dropped while it decodes is of the prompt, too.
TEST_P(KvBudgetMemoryTest, PagesOfAPromptWithinTheBudgetStayFlat) {
  for (const char* method : kBudgetMethods) {
    begin();
    const Use use = run({generate(96, 384, KvBudgetOptions{.tokens = 96, .method = method, .interval = 32})});
    ASSERT_FALSE(use.responses[0].error) << method << ": " << use.responses[0].error->message;
    EXPECT_LE(use.most_decoding, (96u + 32u) / 16 + 2) << method;
    expect_all_back(method);
  }
}

TEST_P(KvBudgetMemoryTest, HoleFillingKeepsPagesFlat) {
  for (const char* method : {"random", "knorm", "snapkv", "adakv:keydiff"}) {
    begin();
    KvBudgetOptions budget{.tokens = 48, .method = method, .interval = 32, .compaction = Compaction::kHoleFill};
    const Use use = run({generate(200, 384, budget)});
    ASSERT_FALSE(use.responses[0].error) << method << ": " << use.responses[0].error->message;
    EXPECT_LE(use.most_decoding, (48u + 32u) / 16 + 2) << method;
    expect_all_back(method);
  }
}

// Those who fill pages in the same steps all stay inside their budgets.
TEST_P(KvBudgetMemoryTest, ManyInLockstepStayFlat) {
  for (const char* method : {"paged_eviction", "streaming", "adakv:knorm"}) {
    begin();
    std::vector<Request> requests;
    for (int i = 0; i < 4; ++i) {
      requests.push_back(generate(96, 400, KvBudgetOptions{.tokens = 48, .method = method, .interval = 16}));
    }
    const Use use = run(requests);
    for (const Response& response : use.responses) EXPECT_FALSE(response.error);
    EXPECT_LE(use.most_decoding, 4 * ((48u + 16u) / 16 + 3)) << method;
    expect_all_back(method);
  }
}

TEST_P(KvBudgetMemoryTest, ChunksAreCutAsTheyCome) {
  for (const char* method : kBudgetMethods) {
    begin();
    KvBudgetOptions budget{.tokens = 64, .method = method, .prefill = BudgetPrefill::kChunked};
    const Use use = run({generate(450, 16, budget)});
    ASSERT_FALSE(use.responses[0].error) << method << ": " << use.responses[0].error->message;
    EXPECT_LE(use.most, (64u + 128u) / 16 + 2) << method;  // chunks of 128; 450 tokens are 29 blocks
    expect_all_back(method);
  }
}

TEST_P(KvBudgetMemoryTest, OneTokenAStepReturnsPagesOnlyWhenEmpty) {
  begin();
  KvBudgetOptions budget{.tokens = 32, .method = "streaming", .interval = 1};
  const Use use = run({generate(100, 200, budget)});
  ASSERT_FALSE(use.responses[0].error);
  EXPECT_EQ(use.responses[0].budget.paging.tokens_dropped, (68u + 198u) * 6);  // of 3 layers × 2 heads, one a step
  EXPECT_LE(use.most_decoding, 32u / 16 + 3);
}

// In pools of as many blocks as one request needs with its holes closed, or two: what has the lowest norms lies
// scattered over far more.
TEST_P(KvBudgetMemoryTest, HolesThatNothingClosesAreClosedWhenThePoolIsFull) {
  struct Case {
    Compaction how;
    std::uint32_t interval;
  };
  for (const auto& [how, interval] : {Case{Compaction::kNone, 1}, {Compaction::kNone, 16}, {Compaction::kRepack, 1}}) {
    for (const std::uint32_t at_once : {1u, 2u}) {
      open(at_once == 1 ? 9 : 14);
      const KvBudgetOptions budget{.tokens = 48, .method = "knorm", .interval = interval, .compaction = how};
      const Use use = run(std::vector<Request>(at_once, generate(96, 700, budget)));
      for (const Response& response : use.responses) {
        EXPECT_FALSE(response.error) << response.error->message;
        EXPECT_EQ(response.tokens.size(), 700u);
      }
      EXPECT_EQ(engine_->stats().preempted, 0u) << at_once << " at once, every " << interval;
      expect_all_back("knorm");
    }
  }
}

// Of another request, too, which else would be preempted.
TEST_P(KvBudgetMemoryTest, HolesOfOneRequestAreClosedForAnother) {
  open(32);
  const KvBudgetOptions budget{.tokens = 48, .method = "knorm", .interval = 16, .compaction = Compaction::kNone};
  const Use use = run({EngineTest::generate(5, 40, 300), generate(96, 500, budget)});
  for (const Response& response : use.responses) EXPECT_FALSE(response.error) << response.error->message;
  EXPECT_EQ(engine_->stats().preempted, 0u);
  expect_all_back("knorm");
}

// Attention over what survives is the same wherever it lies.
TEST_F(KvBudgetTest, CompactionDoesNotChangeTheAnswer) {
  for (const char* method : {"knorm", "tova", "adakv:vk_ratio"}) {
    std::vector<std::vector<Token>> answers;
    for (const Compaction how : {Compaction::kNone, Compaction::kRepack, Compaction::kHoleFill}) {
      const Response response = engine_->run(
          generate(120, 150, KvBudgetOptions{.tokens = 64, .method = method, .interval = 16, .compaction = how}));
      ASSERT_FALSE(response.error);
      EXPECT_GT(response.budget.paging.slots_copied, 0u);  // the prompt is packed in any case
      answers.push_back(response.tokens);
    }
    EXPECT_EQ(answers[0], answers[1]) << method;
    EXPECT_EQ(answers[0], answers[2]) << method;
  }
}

TEST_F(KvBudgetTest, OthersSeeNothingOfWhatIsDropped) {
  const Response alone = engine_->run(ask(5, 200, 1));
  for (const char* method : kBudgetMethods) {
    Request compressed = ask(5, 200, 2);
    compressed.budget = KvBudgetOptions{.tokens = 48, .method = method};
    compressed.max_tokens = 60;
    const Use use = run({compressed, ask(5, 200, 1), ask(5, 200, 1)});
    for (const Response& response : use.responses) {
      if (response.lossy) continue;
      EXPECT_EQ(response.tokens, alone.tokens) << method;
      EXPECT_EQ(response.cached.from("pool"), 208u) << method;  // lossy pages never enter the tree, exact ones stay
    }
    EXPECT_EQ(std::ranges::count_if(use.responses, &Response::lossy), 1) << method;
  }
  drain();
}

TEST_F(KvBudgetTest, ShareOfThePrompt) {
  const Response response =
      engine_->run(generate(200, 8, KvBudgetOptions{.tokens = 4096, .keep = 0.25, .method = "knorm"}));
  ASSERT_FALSE(response.error);
  EXPECT_EQ(response.budget.paging.tokens_dropped, 150u * 6);
}

TEST_F(KvBudgetTest, RefusesWhatCannotBeDone) {
  const auto refused = [&](KvBudgetOptions budget) {
    const Response response = engine_->run(generate(50, 8, budget));
    EXPECT_TRUE(response.error);
    return response.error ? response.error->message : "";
  };
  EXPECT_NE(refused({.tokens = 15}).find("at least one page"), std::string::npos);
  EXPECT_NE(refused({.tokens = 64, .keep = 0}).find("of the prompt"), std::string::npos);
  EXPECT_NE(refused({.tokens = 64, .method = "lru"}).find("lru"), std::string::npos);
  EXPECT_NE(refused({.tokens = 64, .method = "kvzip"}).find("repeats the context"), std::string::npos);
  EXPECT_NE(refused({.tokens = 64, .method = "expected_attention"}).find("mean and covariance"), std::string::npos);
  const std::string scissorhands = refused({.tokens = 64, .method = "scissorhands"});
  EXPECT_NE(scissorhands.find("the queries of the last 400 tokens"), std::string::npos) << scissorhands;
  for (const char* method : {"observed_attention", "adakv:observed_attention"}) {
    EXPECT_NE(refused({.tokens = 64, .method = method}).find("sum of the attention"), std::string::npos) << method;
  }
  EXPECT_NE(refused({.tokens = 64, .method = "triattention"}).find("calibration"), std::string::npos);
  EXPECT_NE(refused({.tokens = 64, .method = "knorm+int8"}).find("without a quantizer"), std::string::npos);
  EXPECT_NE(refused({.tokens = 64, .interval = 0}).find("every 0 tokens"), std::string::npos);
  Request both = generate(50, 8, KvBudgetOptions{.tokens = 64});
  both.policy.method = Method::parse("knorm").value();
  both.policy.keep = 0.5;
  EXPECT_TRUE(engine_->run(both).error);
  Request exact = generate(50, 8, KvBudgetOptions{.tokens = 64});
  exact.policy.exact = true;
  const Response refusal = engine_->run(exact);
  ASSERT_TRUE(refusal.error);
  EXPECT_NE(refusal.error->message.find("exact"), std::string::npos);
}

TEST_F(KvBudgetTest, RunsEveryScorerThatItTakes) {
  for (const std::string_view name : scorer_names()) {
    const auto made =
        KvBudget::create({.tokens = 64, .method = std::string(name)}, model_->info(), 16, 50, {}, nullptr);
    const bool run = std::ranges::find(kBudgetMethods, name) != std::end(kBudgetMethods);
    EXPECT_EQ(made.has_value(), run) << name << " runs in no test, or is refused";
  }
}

}  // namespace
}  // namespace shale
