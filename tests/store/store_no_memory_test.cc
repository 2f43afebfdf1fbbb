// Where memory is lacking for what a store encodes, reads or makes, that alone is lost: not the process, nor the store.
#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <new>

#include "store/placed_store.h"
#include "support/little_memory.h"
#include "tier/tier_wrapper.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

// What it has read is ready, and cannot be taken while `lacking`.
class ScarceTier final : public TierWrapper {
 public:
  ScarceTier(std::unique_ptr<Tier> inner, const std::atomic<bool>& lacking, const Clock& clock)
      : TierWrapper(std::move(inner), {}, clock), lacking_(lacking) {}

 private:
  struct Read final : TierRead {
    Read(std::shared_ptr<TierRead> of, const std::atomic<bool>& scarce) : read(std::move(of)), lacking(scarce) {}
    bool ready() const override { return read->ready(); }
    Result<BlobBytes> take() override { return lacking ? throw std::bad_alloc() : read->take(); }
    std::uint64_t first_byte() const override { return read->first_byte(); }
    double seconds() const override { return read->seconds(); }
    const std::shared_ptr<TierRead> read;
    const std::atomic<bool>& lacking;
  };

  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double) override {
    return std::make_shared<Read>(inner().read(id, range), lacking_);
  }
  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double) override {
    return inner().write(id, std::move(bytes));
  }

  const std::atomic<bool>& lacking_;
};

TEST_F(StoreTest, ALoadWithoutMemoryFailsAndItsBlocksStay) {
  std::atomic<bool> lacking = false;
  StoreTier tier = memory_tier(clock_);
  tier.tier = std::make_unique<ScarceTier>(std::move(tier.tier), lacking, clock_);
  StoreOptions options = small_options();
  options.manifest_cache_bytes = 1;  // every load reads them
  const auto store = open(tiers_of(std::move(tier)), options);
  const auto keys = chain_of(1, 16);
  ASSERT_TRUE(save_all(*store, keys));
  lacking = true;
  Kv kv(keys.size());
  const auto load = store->load(keys, kv.view()).value();
  const Status loaded = load->wait();
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kInternal);
  EXPECT_THAT(loaded.error().message, HasSubstr("no memory"));
  EXPECT_TRUE(kv.untouched());
  lacking = false;
  EXPECT_EQ(load_all(*store, keys), 16u);
  expect_sound(*store);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need address space of their own
TEST(MemoryTierNoMemoryTest, KeepsABufferWithSlackWhereThereIsNoneForACopy) {
  const VirtualClock clock;
  const StoreTier tier = memory_tier(clock, std::size_t{256} << 20);
  auto large = std::make_shared<AlignedBuffer>(std::size_t{96} << 20);
  std::memset(large->data(), 7, large->size());
  large->resize(std::size_t{64} << 20);
  const BlobId id{};
  {
    const LittleMemory little(std::size_t{24} << 20);
    ASSERT_TRUE(tier.tier->write(id, large)->wait());
  }
  const auto read = tier.tier->read(id)->take();
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ((*read)->size(), large->size());
}

// Extents of one blob, of memory that nobody has touched.
class StoreNoMemoryTest : public StorePlacementTest {
 protected:
  static constexpr std::uint32_t kTokens = 4096;
  static constexpr std::size_t kExtentBytes = std::size_t{128} << 20, kLittle = std::size_t{24} << 20;

  static StoreOptions of_large_extents(StoreOptions options) {
    options.geometry = {.layers = 1, .kv_heads = 64, .head_dim = 128, .block_tokens = 16};
    options.chunk_tokens = 256;
    options.staging_bytes = 16 * kExtentBytes;
    return options;
  }
  std::unique_ptr<StoreSave> save(Store& store, std::int32_t first) {
    const std::byte* bytes = memory_.data();
    const auto view = packed_view(of_large_extents({}).geometry, KvPacking::kTokensHeads, bytes, kTokens);
    return store.save(chain_of(first, kTokens / 16), view, {.recompute_s = 1}).value();
  }
  static std::uint32_t blocks(Store& store, std::int32_t first) {
    return store.lookup(chain_of(first, kTokens / 16), kAny).blocks;
  }

  const AlignedBuffer memory_{kExtentBytes};
};

TEST_F(StoreNoMemoryTest, ASaveEndsWithAnErrorAndMayBeTriedAgain) {
  for (const unsigned threads : {0u, 1u}) {
    StoreOptions options = of_large_extents(small_options());
    options.threads = threads;
    const auto store = open(tiers_of(memory_tier(clock_)), options);
    {
      const LittleMemory little(kLittle);
      const auto refused = save(*store, 1);
      const Status saved = refused->wait();
      ASSERT_FALSE(saved);
      EXPECT_EQ(saved.error().code, ErrorCode::kInternal);
      EXPECT_THAT(saved.error().message, HasSubstr("no memory"));
      EXPECT_TRUE(refused->released());
      EXPECT_TRUE(store->flush());
      EXPECT_EQ(store->stats().staged_bytes, 0u);
      EXPECT_EQ(store->stats().extents_failed, 1u);
    }
    const Status saved = save(*store, 1)->wait();
    EXPECT_TRUE(saved) << saved.error().message;
    EXPECT_EQ(blocks(*store, 1), kTokens / 16);
    expect_sound(*store);
  }
}

TEST_F(StoreNoMemoryTest, WhatCannotBeCompressedStaysAsItIs) {
  const VirtualClock clock;
  StoreOptions options = of_large_extents(with_methods({"int8"}));
  options.threads = 0;
  const auto store = Store::open(options, tiers_of(memory_tier(clock, kExtentBytes * 7 / 4)), clock).value();
  const auto is_exact = [&](std::int32_t first) {
    const std::vector<StoreExtent> forms = store->inspect(chain_of(first, kTokens / 16));
    EXPECT_EQ(forms.size(), 1u);
    return !forms.empty() && forms[0].exact;
  };
  {
    const LittleMemory little(kExtentBytes + kLittle);  // to encode it, and no more
    const Status saved = save(*store, 1)->wait();
    EXPECT_TRUE(saved) << saved.error().message;
    EXPECT_TRUE(store->flush());
    EXPECT_TRUE(is_exact(1));
    EXPECT_EQ(store->stats().staged_bytes, 0u);
  }
  clock.sleep_until_s(clock.now_s() + 60);
  const Status saved = save(*store, 10'000)->wait();
  EXPECT_TRUE(saved) << saved.error().message;
  ASSERT_TRUE(store->flush());
  EXPECT_FALSE(is_exact(1) && is_exact(10'000)) << "now that there is memory";
  EXPECT_EQ(blocks(*store, 1) + blocks(*store, 10'000), 2 * kTokens / 16);
  expect_sound(*store);
}
#endif

}  // namespace
}  // namespace shale::testing
