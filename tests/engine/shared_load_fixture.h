// Requests about one document that lies on the tier alone.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <vector>

#include "engine/loading_fixture.h"

namespace shale::testing {

inline constexpr std::uint32_t kAlone = 15;  // blocks of a document, its question and the answer

// Requests are about document 1, of which 192 tokens are loaded.
class SharedLoadTest : public LoadingTest {
 protected:
  // The document lies on the tier alone, and loading it pays.
  void store(std::uint32_t pool_blocks) {
    open_over_tier(pool_blocks);
    for (int i = 0; i < 3; ++i) cache_->note_prefill(100, 0, 10);
    static_cast<void>(stored_answer(1));
  }
  RequestId submit(std::uint32_t question, const RequestPolicy& policy = {}) {
    Request request = ask(1, 200, question);
    request.policy = policy;
    return engine_->submit(std::move(request)).value();
  }
  std::vector<RequestId> submit_all(std::uint32_t count) {
    std::vector<RequestId> ids;
    for (std::uint32_t question = 1; question <= count; ++question) ids.push_back(submit(question));
    return ids;
  }
  // Until all that were submitted are over; in their order.
  std::map<RequestId, Response> run_all() {
    std::map<RequestId, Response> responses;
    for (int turn = 0; turn < 100'000 && engine_->run_once() && engine_->running() + engine_->waiting() > 0; ++turn) {
      blocks_used_ = std::max(blocks_used_, pool_->blocks_total() - pool_->blocks_free());
      const Status sound = pool_->check_integrity();
      EXPECT_TRUE(sound) << sound.error().message;
    }
    for (Response& response : engine_->finished()) {
      EXPECT_FALSE(response.error) << response.error->message;
      responses.emplace(response.id, std::move(response));
    }
    return responses;
  }
  void run_some_turns() {
    for (int i = 0; i < 3; ++i) engine_->run_once();
  }
  // That so many load, and so many take what these bring from the pool.
  static void expect_sources(const std::map<RequestId, Response>& responses, std::ptrdiff_t load,
                             std::ptrdiff_t share) {
    const auto from = [&](const char* source, std::uint32_t least) {
      return std::ranges::count_if(responses,
                                   [&](const auto& each) { return each.second.cached.from(source) >= least; });
    };
    EXPECT_EQ(from("memory", 192), load);
    EXPECT_EQ(from("pool", 192), share);
  }
  std::uint64_t bytes_read() const { return tier_->stats().read_bytes; }
  std::uint64_t bytes_of_one() {
    const std::uint64_t before = bytes_read();
    submit(9);
    static_cast<void>(run_all());
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
    return bytes_read() - before;
  }

  std::uint32_t blocks_used_ = 0;
};

}  // namespace shale::testing
