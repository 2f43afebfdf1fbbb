// What a store promises its callers: look-up, load and save through views, sharing, restarts, lossy methods.
#include "store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "store/store_fixture.h"

namespace shale::testing {
namespace {

namespace fs = std::filesystem;

TEST_F(StoreTest, WhatIsSavedIsFoundAndLoadedBitForBitToTheBlock) {
  for (const bool with_disk : {false, true}) {
    const auto store =
        with_disk ? open(tiers_of(disk_tier(folder_.path() / "disk", clock_))) : open(tiers_of(memory_tier(clock_)));
    const auto keys = chain_of(1, 150);  // three extents, the last chunk is half one
    EXPECT_EQ(store->lookup(keys).blocks, 0u);
    EXPECT_EQ(load_all(*store, keys), 0u);
    ASSERT_TRUE(save_all(*store, keys));
    for (const std::size_t blocks : {1u, 2u, 3u, 4u, 5u, 64u, 65u, 127u, 149u, 150u}) {
      const auto part = std::span(keys).first(blocks);
      const StoreLookup found = store->lookup(part);
      EXPECT_EQ(found.blocks, blocks);
      EXPECT_EQ(found.exact_blocks, blocks);
      EXPECT_EQ(found.quality, 1);
      EXPECT_GT(found.ready_s, 0);
      EXPECT_FALSE(found.pending);
      EXPECT_EQ(load_all(*store, part), blocks);
    }
    EXPECT_EQ(store->stats().extents, 3u);
    EXPECT_EQ(store->stats().chunks, 38u);
    expect_sound(*store);
  }
}

TEST_F(StoreTest, ChainsThatBeginAlikeShareTheirChunksWhereverTheyPart) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto one = chain_of(1, 30);
  ASSERT_TRUE(save_all(*store, one));
  std::vector<std::int32_t> numbers(30);
  std::iota(numbers.begin(), numbers.end(), 1);
  for (std::uint32_t ragged = 1; ragged < 30; ++ragged) {
    auto branch = numbers;
    for (std::uint32_t b = ragged; b < branch.size(); ++b) branch[b] += static_cast<std::int32_t>(1000 * ragged);
    const auto keys = chain_of(branch);
    EXPECT_EQ(store->lookup(keys).blocks, ragged);
    const Kv kv(keys);
    const auto save = store->save(keys, kv.readable()).value();
    ASSERT_TRUE(save->wait());
    EXPECT_EQ(save->shared_blocks(), ragged);
    EXPECT_EQ(load_all(*store, keys), 30u);
  }
  EXPECT_EQ(load_all(*store, one), 30u);
  ASSERT_TRUE(save_all(*store, one));
  EXPECT_EQ(store->stats().blocks_shared, 30u + 29 * 30 / 2);
  expect_sound(*store);
}

TEST_F(StoreTest, TwoSavesOfTheSameAtOnceStoreItOnce) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 200);
  const Kv kv(keys);
  const auto one = store->save(keys, kv.readable()).value();
  const auto other = store->save(keys, kv.readable()).value();
  ASSERT_TRUE(one->wait());
  ASSERT_TRUE(other->wait());
  EXPECT_EQ(one->shared_blocks() + other->shared_blocks(), 200u);
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(load_all(*store, keys), 200u);
}

TEST_F(StoreTest, ExtentsEndAtBoundaries) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 20);
  StoreHints hints;
  hints.boundaries = {3, 11};
  ASSERT_TRUE(save_all(*store, keys, hints));
  EXPECT_EQ(store->stats().extents, 3u);
  EXPECT_EQ(store->stats().chunks, 1u + 2u + 3u);
  EXPECT_EQ(load_all(*store, keys), 20u);
}

TEST_F(StoreTest, AViewMayHoldTheEndOfAChainOnly) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 24);
  ASSERT_TRUE(save_all(*store, std::span(keys).first(8)));
  StoreHints rest;
  rest.first_block = 6;
  const Kv tail{std::span<const BlockKey>(keys).subspan(6)};
  const auto save = store->save(keys, tail.readable(), rest).value();
  ASSERT_TRUE(save->wait());
  EXPECT_EQ(save->shared_blocks(), 2u);
  EXPECT_EQ(load_all(*store, keys), 24u);

  // From the back: the front is computed meanwhile.
  Kv back(16);
  StoreLoadOptions options;
  options.first_block = 8;
  const auto load = store->load(keys, back.view(), options).value();
  ASSERT_TRUE(load->wait());
  EXPECT_EQ(load->blocks(), 16u);
  EXPECT_EQ(load->skipped(), 0u);
  EXPECT_TRUE(load->failures().empty());
  for (std::uint32_t b = 0; b < 16; ++b) EXPECT_TRUE(back.holds(b, keys[8 + b]));

  Kv inside(18);
  options.first_block = 6;
  const auto partial = store->load(keys, inside.view(), options).value();
  EXPECT_EQ(partial->skipped(), 2u) << "known before anything was read";
  ASSERT_TRUE(partial->wait());
  ASSERT_EQ(partial->failures().size(), 1u) << "the chunk of blocks 4 to 7 begins before the view";
  EXPECT_EQ(partial->failures()[0].blocks, 2u);
  EXPECT_TRUE(inside.holds(2, keys[8]));

  Kv last(3);
  options.first_block = 21;
  const auto none = store->load(keys, last.view(), options).value();
  EXPECT_EQ(none->blocks(), 3u);
  EXPECT_EQ(none->skipped(), 3u) << "the last chunk begins before the view";
  EXPECT_FALSE(none->wait());
  EXPECT_TRUE(last.untouched());
  const auto elsewhere = chain_of(100, 3);
  EXPECT_EQ(store->load(elsewhere, last.view(), {}).value()->skipped(), 0u) << "nothing is there";
}

TEST_F(StoreTest, WhatIsOnDiskOutlivesTheStore) {
  const auto keys = chain_of(1, 100);
  {
    const auto store = open_both();
    ASSERT_TRUE(save_all(*store, keys));
    ASSERT_TRUE(store->flush());
  }
  const auto store = open_both();
  EXPECT_EQ(store->lookup(keys).blocks, 100u);
  EXPECT_EQ(store->lookup(keys).tier, 1u);
  EXPECT_EQ(load_all(*store, keys), 100u);
  expect_sound(*store);
}

TEST_F(StoreTest, ADamagedSnapshotIsRebuiltByListing) {
  const auto keys = chain_of(1, 40);
  {
    const auto store = open_both();
    ASSERT_TRUE(save_all(*store, keys));
    ASSERT_TRUE(store->flush());
  }
  for (const auto& prefix : fs::directory_iterator(folder_.path() / "disk" / "store")) fs::resize_file(prefix, 5);
  {
    const auto store = open_both();
    EXPECT_EQ(load_all(*store, keys), 40u);
    expect_sound(*store);
  }
  fs::remove_all(folder_.path() / "disk" / "store");
  const auto store = open_both();
  EXPECT_EQ(load_all(*store, keys), 40u);
  expect_sound(*store);
}

TEST_F(StoreTest, LayersComeInOrderAndAreThereWhenItSaysSo) {
  const Throttle slow = {"slow", 2e-3, 1e7, 0};
  std::vector<StoreTier> tiers;
  tiers.push_back({.tier = make_throttled_tier(make_memory_tier(kUnlimited, clock_), slow, clock_)});
  const auto store = open(std::move(tiers));
  const auto keys = chain_of(1, 64);
  ASSERT_TRUE(save_all(*store, keys));
  Kv kv(64);
  const auto load = store->load(keys, kv.view()).value();
  EXPECT_FALSE(load->done());
  for (std::uint32_t layer = 0; layer < small_geometry().layers; ++layer) {
    ASSERT_TRUE(load->wait_layer(layer));
    for (std::uint32_t b = 0; b < 64; ++b) EXPECT_TRUE(kv.holds(b, keys[b], layer + 1)) << layer;
  }
  EXPECT_TRUE(load->wait());
}

TEST_F(StoreTest, NothingIsWrittenAfterACancel) {
  const Throttle slow = {"slow", 20e-3, 0, 0};
  std::vector<StoreTier> tiers;
  tiers.push_back({.tier = make_throttled_tier(make_memory_tier(kUnlimited, clock_), slow, clock_)});
  const auto store = open(std::move(tiers));
  const auto keys = chain_of(1, 64);
  ASSERT_TRUE(save_all(*store, keys));
  Kv kv(64);
  {
    const auto load = store->load(keys, kv.view()).value();
    load->poll();
    load->cancel();
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    EXPECT_TRUE(load->poll()) << "nothing more will come";
    EXPECT_EQ(code_of(load->wait()), ErrorCode::kCancelled);
    (void)store->load(keys, kv.view()).value();  // dropped
  }
  EXPECT_TRUE(kv.untouched());
  EXPECT_EQ(store->stats().staged_bytes, 0u);
}

TEST_F(StoreTest, ACancelledSaveLetsGoOfTheViewAtOnce) {
  auto options = small_options();
  options.threads = 0;
  const auto store = open(tiers_of(memory_tier(clock_)), options);
  const auto keys = chain_of(1, 300);
  {
    Kv kv(keys);
    const auto save = store->save(keys, kv.readable()).value();
    EXPECT_FALSE(save->released());
    save->cancel();
    EXPECT_TRUE(save->released());
  }
  ASSERT_TRUE(store->flush());
  EXPECT_EQ(store->lookup(keys).blocks, 0u);
  ASSERT_TRUE(save_all(*store, keys)) << "nothing says that it is still being saved";
  EXPECT_EQ(load_all(*store, keys), 300u);
}

TEST_F(StoreTest, TokensAreComparedWhereBothAreKnown) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 8);
  std::vector<std::int32_t> tokens(8 * kBlockTokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  StoreHints hints;
  hints.tokens = tokens;
  ASSERT_TRUE(save_all(*store, keys, hints));
  StoreLoadOptions options;
  options.tokens = tokens;
  EXPECT_EQ(load_all(*store, keys, options), 8u);
  tokens[9] = -1;
  Kv kv(8);
  const auto load = store->load(keys, kv.view(), options).value();
  EXPECT_EQ(code_of(load->wait()), ErrorCode::kMismatch);
  EXPECT_TRUE(kv.untouched());
}

TEST_F(StoreTest, LossyIsFoundByThoseWhoAcceptItAndLeavesALineage) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 40);
  StoreHints hints;
  hints.method = Method::parse("int8").value();
  hints.quality = 0.9;
  const Status saved = save_all(*store, keys, hints);
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_EQ(store->lookup(keys).blocks, 0u);
  EXPECT_EQ(store->lookup(keys, {.exact = false, .quality_min = 0.95}).blocks, 0u);
  const StoreLookup found = store->lookup(keys, {.exact = false, .quality_min = 0.9});
  EXPECT_EQ(found.blocks, 40u);
  EXPECT_EQ(found.exact_blocks, 0u);
  EXPECT_FLOAT_EQ(static_cast<float>(found.quality), 0.9f);
  Kv kv(40);
  StoreLoadOptions options;
  options.needs = {.exact = false};
  const auto load = store->load(keys, kv.view(), options).value();
  ASSERT_TRUE(load->wait());
  EXPECT_TRUE(load->failures().empty());
  EXPECT_EQ(load->runs().at(0).method.text(), "int8");
  EXPECT_NE(load->lineage(), Hash128());
  EXPECT_FALSE(kv.untouched());
  ASSERT_TRUE(save_all(*store, keys)) << "exact beside it";
  EXPECT_EQ(store->lookup(keys, {.exact = false}).exact_blocks, 40u);
  EXPECT_EQ(load_all(*store, keys), 40u);
}

TEST_F(StoreTest, RankedExtentsBringTheirRowsAndOnlyTheBytesOfTheirKeep) {
  const auto store = open(tiers_of(memory_tier(clock_), disk_tier(folder_.path() / "disk", clock_)));
  const auto keys = chain_of(1, 40);
  ASSERT_TRUE(save_all(*store, keys));
  ASSERT_TRUE(store->flush());
  const std::uint64_t exact_bytes = store->stats().tiers[1].bytes;
  EXPECT_EQ(store->remove(keys), 40u);
  StoreHints hints;
  hints.method = Method::parse("knorm").value();
  hints.keep = 0.1;
  const Status saved = save_all(*store, keys, hints);
  ASSERT_TRUE(saved) << saved.error().message;
  ASSERT_TRUE(store->flush());
  EXPECT_LT(store->stats().tiers[1].bytes, exact_bytes / 2);
  Kv kv(40);
  StoreLoadOptions options;
  options.needs = {.exact = false};
  const auto load = store->load(keys, kv.view(), options).value();
  ASSERT_TRUE(load->wait());
  ASSERT_TRUE(load->failures().empty()) << load->failures()[0].error.message;
  ASSERT_EQ(load->runs().size(), 1u);
  EXPECT_EQ(load->runs()[0].keep, 0.1);
  EXPECT_EQ(load->runs()[0].rows.size(), 6u);
  for (const std::uint32_t rows : load->runs()[0].rows) EXPECT_EQ(rows, 16u) << "of 160 tokens";
}

// As prompts with one system prompt do: a chunk is named by its first block, and goes on otherwise.
TEST_F(StoreTest, WhatBeginsAlikeIsSavedWholeThoughAllIsSavedAtOnce) {
  auto options = small_options();
  options.threads = 0;
  const auto store = open(tiers_of(memory_tier(clock_)), options);
  std::vector<std::vector<BlockKey>> chains;
  for (std::int32_t c = 0; c < 3; ++c) {
    std::vector<std::int32_t> blocks = {1, 2, 3, 4, 5, 6};
    for (std::int32_t b = 0; b < 58; ++b) blocks.push_back(1000 * (c + 1) + b);
    chains.push_back(chain_of(blocks));
  }
  std::vector<Kv> kvs(chains.begin(), chains.end());
  std::vector<std::unique_ptr<StoreSave>> saves;
  for (int c = 0; c < 3; ++c) saves.push_back(store->save(chains[c], kvs[c].readable()).value());
  EXPECT_EQ(saves[0]->shared_blocks(), 0u);
  EXPECT_EQ(saves[1]->shared_blocks(), 6u);
  for (const auto& save : saves) EXPECT_TRUE(save->wait());
  for (const auto& chain : chains) EXPECT_EQ(load_all(*store, chain), 64u);
}

// The same work on a clock that stands still, by the owner alone.
TEST_F(StoreTest, AnOwnerWithoutThreadsDoesTheWorkItself) {
  const VirtualClock clock;
  auto options = small_options();
  options.threads = 0;
  auto store = Store::open(options, tiers_of(memory_tier(clock)), clock).value();
  const auto keys = chain_of(1, 200);
  const Kv kv(keys);
  const auto save = store->save(keys, kv.readable()).value();
  EXPECT_FALSE(save->released());
  InlineExecutor executor;
  while (!save->done()) store->work(executor, 0);
  EXPECT_EQ(store->lookup(keys).blocks, 200u);
  EXPECT_EQ(load_all(*store, keys), 200u);
}

TEST_F(StoreTest, RefusesWhatCannotBe) {
  auto options = small_options();
  options.chunk_tokens = 6;
  EXPECT_EQ(code_of(Store::open(options, tiers_of(memory_tier(clock_)), clock_)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(Store::open(small_options(), {}, clock_)), ErrorCode::kInvalidArgument);
  const auto store = open(tiers_of(memory_tier(clock_)));
  const auto keys = chain_of(1, 8);
  Kv kv(7);
  EXPECT_EQ(code_of(store->load(keys, kv.view())), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(store->save(keys, kv.readable())), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(store->save({}, kv.readable())), ErrorCode::kInvalidArgument);
  auto view = kv.view();
  view.geometry.block_tokens = 2;
  EXPECT_FALSE(store->load(std::span(keys).first(1), view).has_value());
}

// A record with such numbers would be damaged to whoever reads the log.
TEST_F(StoreTest, RefusesHintsThatNoOtherProcessCouldRead) {
  const auto store = open_both();
  const auto keys = chain_of(1, 8);
  const Kv kv(keys);
  const auto refused = [&](auto change) {
    StoreHints hints;
    change(hints);
    return code_of(store->save(keys, kv.readable(), hints)) == ErrorCode::kInvalidArgument;
  };
  for (const double bad : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_TRUE(refused([bad](StoreHints& hints) { hints.time_to_live_s = bad; })) << bad;
    EXPECT_TRUE(refused([bad](StoreHints& hints) { hints.recompute_s = bad; })) << bad;
    EXPECT_TRUE(refused([bad](StoreHints& hints) { hints.quality = bad; })) << bad;
    EXPECT_TRUE(refused([bad](StoreHints& hints) { hints.keep = bad; })) << bad;
  }
  EXPECT_TRUE(refused([](StoreHints& hints) { hints.quality = 95; })) << "a percentage";
  EXPECT_TRUE(refused([](StoreHints& hints) { hints.recompute_s = 1e39; })) << "no float";
  EXPECT_TRUE(save_all(*store, keys));
}

}  // namespace
}  // namespace shale::testing
