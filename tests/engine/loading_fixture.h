// An engine over one tier that takes its time, or never answers.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_fixture.h"
#include "tier/pending.h"
#include "tier/tier_wrapper.h"

namespace shale::testing {

// Answers no read while it is silent; what it then owes fails once it is not.
class SilentTier final : public TierWrapper {
 public:
  SilentTier(std::unique_ptr<Tier> inner, const Clock& clock)
      : TierWrapper(std::move(inner), {.latency_s = 1e-4, .read_bytes_per_s = 1e9, .write_bytes_per_s = 1e9}, clock) {}

  void set_silent(bool silent) {
    silent_ = silent;
    if (silent_) return;
    for (const auto& [read, id, range, start_s] : std::exchange(owed_, {})) {
      Result<BlobBytes> lost = fail(ErrorCode::kIo, "the line is dead");
      finished_read(start_s, 0, lost, range);
      read->complete(std::move(lost), 0);
    }
  }
  // It was slow, and is silent no more.
  void answer() {
    silent_ = false;
    for (const auto& [read, id, range, start_s] : std::exchange(owed_, {})) complete(*read, id, range, start_s);
  }

 private:
  void complete(PendingRead& read, const BlobId& id, const BlobRange& range, double start_s) {
    Result<BlobBytes> bytes = inner().read(id, range)->take();
    finished_read(start_s, 0, bytes, range);
    read.complete(std::move(bytes), 0);
  }
  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double start_s) override {
    auto read = std::make_shared<PendingRead>();
    if (silent_) {
      owed_.push_back({read, id, range, start_s});
    } else {
      complete(*read, id, range, start_s);
    }
    return read;
  }
  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override {
    const std::uint64_t size = bytes->size();
    auto write = inner().write(id, std::move(bytes));
    finished_write(start_s, 0, size, write->created(), {});
    return write;
  }

  bool silent_ = false;
  struct Owed {
    std::shared_ptr<PendingRead> read;
    BlobId id;
    BlobRange range;
    double start_s;
  };
  std::vector<Owed> owed_;
};

// The cache's time passes when the engine has nothing to do but to wait, and never while it computes.
class LoadingTest : public EngineTest {
 protected:
  LoadingTest() { open_over_tier(256); }

  void open_over_tier(std::uint32_t pool_blocks) {
    auto tier = std::make_unique<SilentTier>(make_memory_tier(tier_bytes_, time_), time_);
    tier_ = tier.get();
    open_over(std::move(tier), pool_blocks);
  }
  void open_over(std::unique_ptr<Tier> tier, std::uint32_t pool_blocks) {
    engine_.reset();
    cache_.reset();
    pool_ = PagePool::create(model_->page_shape(), pool_blocks * model_->page_shape().block_bytes()).value();
    std::vector<StoreTier> tiers(1);
    tiers[0].tier = std::move(tier);
    CacheOptions options;
    options.model = model_->info().traits();
    options.load_always = load_always_;
    options.planner = planner_;
    cache_ = Cache::open(std::move(options), {model_->fingerprint(), "tiny"}, *pool_, std::move(tiers), nullptr, time_)
                 .value();
    engine_ = std::make_unique<Engine>(EngineOptions{.sequences_max = 4, .chunk_tokens = 128}, *model_, tokenizer_,
                                       *cache_, time_);
  }

  // The document's keys and values lie on the tier alone.
  std::vector<Token> stored_answer(std::uint32_t document) {
    const Response response = engine_->run(ask(document, 200, 1));
    EXPECT_FALSE(response.error);
    drain();
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
    return response.tokens;
  }

  bool load_always_ = true;
  std::string planner_ = "shale";
  SilentTier* tier_ = nullptr;
};

}  // namespace shale::testing
