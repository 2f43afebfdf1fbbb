// Tenants that share an engine.
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "engine/engine_fixture.h"

namespace shale {
namespace {

using ::testing::ElementsAre;
using testing::EngineTest;

class FairnessTest : public EngineTest {
 protected:
  static Request of(const std::string& tenant, std::uint32_t seed, std::size_t prompt = 40, std::uint32_t tokens = 4) {
    Request request = generate(seed, prompt, tokens);
    request.tenant = tenant;
    return request;
  }

  // The requests in the order in which they ended, by their place among these.
  static std::vector<std::size_t> order_of(Engine& engine, const std::vector<Request>& requests) {
    std::vector<RequestId> ids;
    for (const Request& request : requests) ids.push_back(engine.submit(request).value());
    std::vector<std::size_t> order;
    while (order.size() < requests.size()) {
      EXPECT_TRUE(engine.run_once());
      for (const Response& response : engine.finished()) {
        EXPECT_FALSE(response.error);
        order.push_back(static_cast<std::size_t>(std::ranges::find(ids, response.id) - ids.begin()));
      }
    }
    return order;
  }

  Engine one_at_a_time() {
    return Engine({.sequences_max = 1, .chunk_tokens = 128}, *model_, tokenizer_, *cache_, clock_);
  }
};

TEST_F(FairnessTest, AFloodHoldsUpNobodyElse) {
  Engine engine = one_at_a_time();
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 100; ++i) requests.push_back(of("noisy", i));
  requests.push_back(of("quiet", 100));
  const auto order = order_of(engine, requests);
  const auto at = std::ranges::find(order, 100u) - order.begin();
  EXPECT_LE(at, 1) << "after the one in flight at most";
}

// Also with work of other sizes: in any span both are served alike, to within a request.
TEST_F(FairnessTest, TenantsAreServedAlikeByTokensAndWeight) {
  Engine engine = one_at_a_time();
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 10; ++i) requests.push_back(of("long", i, 120, 4));   // charged 128 each
  for (std::uint32_t i = 10; i < 50; ++i) requests.push_back(of("short", i, 24, 4));  // 32
  for (std::uint32_t i = 50; i < 90; ++i) {
    requests.push_back(of("heavy", i, 24, 4));
    requests.back().tenant_weight = 2;
  }
  std::map<std::string, double> charged;
  int seen = 0;
  for (const std::size_t i : order_of(engine, requests)) {
    charged[requests[i].tenant] += requests[i].tenant == "long" ? 128 : 32;
    if (++seen > 50) break;  // all still wait
    EXPECT_NEAR(charged["long"], charged["short"], 128) << seen;
    EXPECT_NEAR(charged["heavy"], 2 * charged["short"], 2 * 128) << seen;
  }
}

TEST_F(FairnessTest, PrioritiesOrderATenantsOwnAlone) {
  Engine engine = one_at_a_time();
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 3; ++i) requests.push_back(of("a", i));
  for (std::uint32_t i = 3; i < 6; ++i) requests.push_back(of("b", i));
  requests[2].priority = 9;  // of its own before all others of "a", and no more
  EXPECT_THAT(order_of(engine, requests), ElementsAre(2, 3, 0, 4, 1, 5));
}

TEST_F(FairnessTest, ALongAnswerSavesUpNothing) {
  Engine engine({.sequences_max = 2, .chunk_tokens = 128}, *model_, tokenizer_, *cache_, clock_);
  const Request endless = of("a", 0, 40, 1500);
  const RequestId kept = engine.submit(endless).value();
  engine.run_once();
  std::vector<Request> requests;
  for (std::uint32_t i = 1; i < 10; ++i) requests.push_back(of("b", i, 200));
  order_of(engine, requests);
  requests.clear();
  for (std::uint32_t i = 10; i < 14; ++i) requests.push_back(of("b", i, 200));
  for (std::uint32_t i = 14; i < 18; ++i) requests.push_back(of("a", i, 200));
  const auto order = order_of(engine, requests);
  EXPECT_EQ(std::ranges::count_if(order.begin(), order.begin() + 4, [](std::size_t i) { return i >= 4; }), 2)
      << "two of each";
  engine.cancel(kept);
}

TEST_F(FairnessTest, WhoIsAloneHasAll) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 6; ++i) requests.push_back(of("a", i));
  std::uint32_t most = 0;
  for (const Request& request : requests) ASSERT_TRUE(engine_->submit(request));
  for (std::size_t left = requests.size(); left > 0; left -= engine_->finished().size()) {
    engine_->run_once();
    most = std::max(most, engine_->running());
  }
  EXPECT_EQ(most, 4u) << "as many as there are places";
}

TEST_F(FairnessTest, AHighPriorityMakesNoOtherTenantsRunGiveWay) {
  open(40);  // three of them need 20 blocks each at their ends
  std::vector<Request> requests = {of("a", 0, 100, 200)};
  for (std::uint32_t i = 1; i < 4; ++i) {
    requests.push_back(of("b", i, 100, 200));
    requests.back().priority = 5;
  }
  EXPECT_EQ(order_of(*engine_, requests).front(), 0u) << "it began first";
  EXPECT_GT(engine_->stats().preempted, 0u);
}

}  // namespace
}  // namespace shale
