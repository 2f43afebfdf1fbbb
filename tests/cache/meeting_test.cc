// Load and compute meet, on a clock that stands still until it is told to go on.
#include "cache/meeting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "codec/views/sequence_view.h"
#include "support/faulty_tier.h"
#include "tiers/tiers.h"

namespace shale {
namespace {

constexpr std::uint32_t kChunks = 8, kChunkBlocks = 16, kBlocks = kChunks * kChunkBlocks;
constexpr double kTickS = 1e-3, kComputeChunkS = 0.1;

class MeetingTest : public ::testing::Test {
 protected:
  // A tier from which a chunk comes in `load_chunk_s`, and a chain of eight chunks saved there.
  void save_on(double load_chunk_s, testing::Faults faults = {}) {
    const double chunk_bytes = static_cast<double>(shape_.block_bytes()) * kChunkBlocks;
    auto tier = std::make_unique<testing::FaultyTier>(make_memory_tier(kUnlimited, clock_), std::move(faults), clock_);
    const Throttle slow{"slow", 1e-4, chunk_bytes / load_chunk_s, 1e12};
    std::vector<StoreTier> tiers;
    tiers.push_back({.tier = make_throttled_tier(std::move(tier), slow, clock_)});
    tier_ = tiers.back().tier.get();
    tier_->expect({slow.latency_s, slow.read_bytes_per_s, slow.write_bytes_per_s});
    StoreOptions options;
    options.name_space = "test model";
    options.geometry = geometry_of(shape_);
    options.packing = KvPacking::kHeadPages;
    options.threads = 0;
    store_ = Store::open(std::move(options), std::move(tiers), clock_).value();

    for (std::uint32_t i = 0; i < kBlocks * shape_.block_size; ++i) tokens_.push_back(static_cast<std::int32_t>(i));
    keys_ = block_keys("seed", tokens_, shape_.block_size);
    saved_ = std::make_unique<Sequence>(*pool_);
    ASSERT_TRUE(saved_->append(static_cast<std::uint32_t>(tokens_.size())));
    const std::vector<PoolBlockId> blocks = saved_->blocks(saved_->length());
    for (std::uint32_t b = 0; b < kBlocks; ++b) {
      const std::vector<std::byte> bytes(shape_.page_bytes(), static_cast<std::byte>(b + 1));
      for (std::uint32_t i = 0; i < shape_.pages_per_block(); ++i) {
        pool_->copy_in(bytes, blocks[b] * shape_.pages_per_block() + i);
      }
    }
    pool_->fence();
    ASSERT_TRUE(store_->save(keys_, view_of(std::as_const(*saved_), 0, saved_->length())).value()->wait());
    ASSERT_EQ(store_->lookup(keys_).exact_blocks, kBlocks);
    for (int i = 0; i < 8; ++i) costs_.prefill(256, 0, kComputeChunkS);
  }

  std::vector<std::byte> bytes_of(PoolBlockId block) {
    std::vector<std::byte> bytes(shape_.block_bytes());
    for (std::uint32_t i = 0; i < shape_.pages_per_block(); ++i) {
      pool_->copy_out(block * shape_.pages_per_block() + i,
                      std::span(bytes).subspan(i * shape_.page_bytes(), shape_.page_bytes()));
    }
    pool_->fence();
    return bytes;
  }

  // Computes chunk after chunk while the rest is loaded; how long until all is there.
  double first_token_s(Sequence& sequence) {
    Tier* const tiers[] = {tier_};
    const Meeting::Context context{*store_, *pool_, tiers, costs_, clock_, {}, kChunkBlocks};
    Meeting meeting(context, keys_, tokens_, store_->lookup(keys_), 0);
    InlineExecutor executor;
    const double begun_s = clock_.now_s();
    double chunk_done_s = 0;  // of the one that is being computed; 0: none is
    while (true) {
      meeting.poll(executor, 1, sequence.length() / shape_.block_size);
      if (chunk_done_s > 0 && clock_.now_s() >= chunk_done_s) {
        EXPECT_TRUE(sequence.append(kChunkBlocks * shape_.block_size));
        chunk_done_s = 0;
      }
      const std::uint32_t computed = sequence.length() / shape_.block_size;
      EXPECT_LE(computed, meeting.limit());
      if (computed == meeting.limit() && meeting.arrived()) break;
      if (chunk_done_s == 0 && computed < meeting.limit()) chunk_done_s = clock_.now_s() + kComputeChunkS;
      clock_.advance(kTickS);
      if (clock_.now_s() > begun_s + 60) break;
    }
    const std::uint32_t computed = sequence.length();
    const std::vector<Meeting::Brought> brought = meeting.join(sequence);
    EXPECT_EQ(brought.size(), 1u);
    EXPECT_EQ(computed + brought[0].tokens, tokens_.size());
    EXPECT_EQ(sequence.length(), tokens_.size());
    loaded_ = brought[0].tokens / shape_.block_size;
    return clock_.now_s() - begun_s;
  }

  // What was loaded is what was saved.
  void expect_loaded_as_saved(const Sequence& sequence) {
    const std::vector<PoolBlockId> blocks = sequence.blocks(sequence.length());
    const std::vector<PoolBlockId> saved = saved_->blocks(saved_->length());
    for (std::uint32_t b = kBlocks - loaded_; b < kBlocks; ++b) {
      EXPECT_EQ(bytes_of(blocks[b]), bytes_of(saved[b])) << "block " << b;
    }
  }

  VirtualClock clock_;
  const PageShape shape_{.layers = 2, .kv_heads = 2, .head_dim = 32};
  std::unique_ptr<PagePool> pool_ = PagePool::create(shape_, 4 * kBlocks * shape_.block_bytes()).value();
  CostModel costs_;
  std::unique_ptr<Store> store_;
  Tier* tier_ = nullptr;
  std::vector<std::int32_t> tokens_;
  std::vector<BlockKey> keys_;
  std::unique_ptr<Sequence> saved_;
  std::uint32_t loaded_ = 0;
};

TEST_F(MeetingTest, TakesLittleMoreThanHalfOfEither) {
  save_on(kComputeChunkS);
  Sequence sequence(*pool_);
  EXPECT_LE(first_token_s(sequence), 0.65 * kChunks * kComputeChunkS);
  EXPECT_GE(loaded_, 3 * kChunkBlocks);
  EXPECT_LE(loaded_, 5 * kChunkBlocks);
  expect_loaded_as_saved(sequence);
}

TEST_F(MeetingTest, WhatIsFastDoesMost) {
  save_on(kComputeChunkS / 20);
  Sequence sequence(*pool_);
  EXPECT_LE(first_token_s(sequence), 1.5 * kComputeChunkS);
  EXPECT_GE(loaded_, 7 * kChunkBlocks);
}

TEST_F(MeetingTest, WhatIsSlowIsComputed) {
  save_on(20 * kComputeChunkS);
  Sequence sequence(*pool_);
  EXPECT_LE(first_token_s(sequence), (kChunks + 0.1) * kComputeChunkS);
}

TEST_F(MeetingTest, WhatIsSlowIsLoadedWhileOthersAreComputed) {
  save_on(20 * kComputeChunkS);
  Tier* const tiers[] = {tier_};
  const Meeting::Context context{*store_, *pool_, tiers, costs_, clock_, {}, kChunkBlocks};
  Meeting meeting(context, keys_, tokens_, store_->lookup(keys_), 0);
  InlineExecutor executor;
  meeting.poll(executor, 1, 0);
  EXPECT_EQ(meeting.limit(), kBlocks) << "computing is sooner";
  const double before_s = 1000 * kComputeChunkS;
  for (double until_s = clock_.now_s() + 60; clock_.now_s() < until_s; clock_.advance(kTickS)) {
    meeting.poll(executor, 1, 0, before_s);
    if (meeting.limit() == 0 && meeting.arrived()) break;
  }
  EXPECT_EQ(meeting.limit(), 0u) << "all of it";
  EXPECT_TRUE(meeting.arrived());
}

// A chunk that cannot be read is computed, and what is behind it is not lost.
TEST_F(MeetingTest, DamageIsComputed) {
  save_on(kComputeChunkS, {.corrupt_read = testing::only(3)});
  Sequence sequence(*pool_);
  first_token_s(sequence);
  EXPECT_EQ(loaded_, 1 * kChunkBlocks) << "a chunk is two reads, and computing goes on up to the damaged one's end";
  expect_loaded_as_saved(sequence);
  EXPECT_EQ(store_->stats().damaged_chunks, 1u);
}

TEST_F(MeetingTest, EstimatesTheHarmonicMean) {
  save_on(kComputeChunkS);
  const double both_s = Meeting::estimate_s(costs_, store_->lookup(keys_), 0, shape_.block_size);
  EXPECT_NEAR(both_s, kChunks * kComputeChunkS / 2, 0.05);
}

}  // namespace
}  // namespace shale
